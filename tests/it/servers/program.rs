//! The program on each server's store.

use crate::cli::countersign;

#[tokio::test]
async fn the_program_works_on_postgres() {
    if let Some(database) = super::postgres::Database::create().await {
        works_on(&database.url);
    }
}

#[tokio::test]
async fn the_program_works_on_mysql() {
    if let Some(database) = super::mysql::Database::create().await {
        works_on(&database.url);
        works_on(&database.url.replacen("mysql:", "mariadb:", 1));
    }
}

fn works_on(url: &str) {
    let migrated = countersign(["migrate", "--store", url]).run().exits(0);
    assert!(migrated.text().contains("schema version 1"), "{}", migrated.text());
    countersign(["inbox", "list", "--no-migrate", "--store", url]).run().exits(0);
    countersign(["inbox", "show", "evt_1", "--store", url]).run().exits(1).says("evt_1");
    let purged = countersign(["purge", "--store", url]).run().exits(0);
    assert!(purged.text().contains("0 keys"), "{}", purged.text());
}
