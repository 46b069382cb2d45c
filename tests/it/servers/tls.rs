//! TLS to the database, as the program is told by a URL. The servers refuse whoever comes without.

use countersign::store::{InboxStore as _, MySqlStore, PostgresStore, Settled};
use sqlx::AssertSqlSafe;

use super::{acquire, done, mysql, request, server, unique};
use crate::cli::countersign;

#[tokio::test]
async fn postgres_is_reached_with_a_certificate_of_the_right_authority_alone() {
    let (Some(url), Some((ca, other_ca))) = (server("COUNTERSIGN_TEST_TLS_POSTGRES"), authorities()) else { return };
    let verified = format!("{url}?sslmode=verify-full&sslrootcert={ca}");
    works(&verified);
    let store = PostgresStore::connect(&verified).await.expect("the store opens");
    let lease = acquire(&store, request(unique())).await;
    assert_eq!(store.complete(lease, done()).await.expect("an answer"), Settled::Done);

    refused(&format!("{url}?sslmode=verify-full&sslrootcert={other_ca}"));
    // The authorities of the system do not know it either.
    refused(&format!("{url}?sslmode=verify-full"));
    refused(&format!("{url}?sslmode=disable"));
}

#[tokio::test]
async fn mysql_is_reached_with_a_certificate_of_the_right_authority_alone() {
    let (Some(url), Some((ca, other_ca))) = (server("COUNTERSIGN_TEST_TLS_MYSQL"), authorities()) else { return };
    let name = unique();
    let mut connection = mysql::connect(&format!("{url}?ssl-mode=VERIFY_CA&ssl-ca={ca}")).await;
    let create = AssertSqlSafe(format!("CREATE DATABASE {name}"));
    sqlx::raw_sql(create).execute(&mut connection).await.expect("a database");
    let verified = format!("{url}/{name}?ssl-mode=VERIFY_IDENTITY&ssl-ca={ca}");
    works(&verified);
    let store = MySqlStore::connect(&verified).await.expect("the store opens");
    let lease = acquire(&store, request(unique())).await;
    assert_eq!(store.complete(lease, done()).await.expect("an answer"), Settled::Done);

    refused(&format!("{url}/{name}?ssl-mode=VERIFY_IDENTITY&ssl-ca={other_ca}"));
    refused(&format!("{url}/{name}?ssl-mode=VERIFY_IDENTITY"));
    refused(&format!("{url}/{name}?ssl-mode=DISABLED"));
}

/// The one that signed the servers' certificate, and one that did not.
fn authorities() -> Option<(String, String)> {
    Some((server("COUNTERSIGN_TEST_TLS_CA")?, server("COUNTERSIGN_TEST_TLS_OTHER_CA")?))
}

fn works(url: &str) {
    countersign(["migrate", "--store", url]).run().exits(0);
    countersign(["inbox", "list", "--no-migrate", "--store", url]).run().exits(0);
}

fn refused(url: &str) {
    countersign(["inbox", "list", "--no-migrate", "--store", url]).run().exits(3);
}
