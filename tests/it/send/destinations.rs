//! Which targets are dialled: the table of destinations, in the classifier and over sockets.

use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::time::Duration;

use countersign::send::{
    Failure, Guard, HttpTransport, Outgoing, Policy, Refusal, Resolve, ResolveFuture, Rule, Stage, Target, TargetError,
    Transport, Verdict, classify,
};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::Full;

use super::{
    Names, Receiver, acceptor, anything, builder, identity, listen, only, outgoing, send, transport, trusting,
};
use crate::support::{Calls, until};

/// A line of the table.
struct Row {
    url: String,
    is_allowed: [bool; 2],
    /// Name and answers, where the host is a name.
    names: Names,
    answers: Vec<IpAddr>,
}

/// The table holds what is a choice, and says so; this is the one that we chose otherwise than it suggests.
const CHOSEN_OTHERWISE: &str = "https://user:pa55@1.1.1.1/hook";

fn table() -> Vec<Row> {
    let table = include_str!("../../destinations.tsv");
    let lines = table.lines().filter(|line| !line.starts_with('#')).skip(1);
    let rows: Vec<Row> = lines.map(row).collect();
    assert!(rows.len() > 90, "the table is there");
    rows
}

fn row(line: &str) -> Row {
    let columns: Vec<&str> = line.split('\t').collect();
    let [url, https_only, http_too, resolution, _certainty, encoding, _why] = columns[..] else { panic!("{line}") };
    let url = if encoding == "esc" { url.replace("\\t", "\t") } else { url.to_owned() };
    let allow = |verdict: &str| verdict == "allow" && url != CHOSEN_OTHERWISE;
    let is_allowed = [allow(https_only), allow(http_too)];
    let (mut names, mut answers) = (Names::default(), Vec::new());
    if resolution != "-" {
        let host = url.parse::<Target>().expect("a name").host().to_owned();
        names = names.with(&host, resolution);
        answers = resolution.split(',').map(|one| one.parse().expect(one)).collect();
    }
    Row { url, is_allowed, names, answers }
}

fn policies() -> [Policy; 2] {
    [Policy::new(), Policy::new().allow_http()]
}

async fn vet(policy: Policy, names: &Names, url: &str) -> Result<Vec<SocketAddr>, Failure> {
    Guard::new(policy).with_resolver(names.clone()).vet(&url.parse()?).await
}

#[tokio::test]
async fn c129_c130_c132_c133_c134_c136_c137_each_destination_of_the_table_is_judged_as_it_says() {
    for row in table() {
        for (policy, is_allowed) in policies().into_iter().zip(row.is_allowed) {
            match vet(policy, &row.names, &row.url).await {
                Ok(addresses) => {
                    assert!(is_allowed, "{:?} is allowed", row.url);
                    let target: Target = row.url.parse().expect("a target");
                    let expected = match target.host().parse() {
                        Ok(literal) => vec![literal],
                        Err(_) => row.answers.clone(),
                    };
                    let dialled: Vec<IpAddr> = addresses.iter().map(SocketAddr::ip).collect();
                    assert_eq!(dialled, expected, "what is shown is what is dialled: {:?}", row.url);
                }
                Err(Failure::Refused(_) | Failure::Target(_)) => assert!(!is_allowed, "{:?} is denied", row.url),
                Err(other) => panic!("{:?}: {other}", row.url),
            }
        }
    }
}

#[tokio::test]
async fn c131_nothing_that_the_table_denies_reaches_a_listener_on_this_machine() {
    // Both families, so that every way to write this machine leads there.
    let (listener, address) = listen("[::]:0").await;
    let accepted = Calls::default();
    let count = accepted.clone();
    let accepting = tokio::spawn(async move {
        while listener.accept().await.is_ok() {
            count.count();
        }
    });

    let mut tried = 0;
    for row in table() {
        for (policy, is_allowed) in policies().into_iter().zip(row.is_allowed) {
            if is_allowed {
                continue;
            }
            let guard = Guard::new(policy).with_resolver(row.names.clone());
            let transport = builder(guard).build().expect("a transport");
            // As it is written, and on the port that somebody listens on.
            let mut urls = vec![row.url.clone()];
            if let Ok(mut url) = url::Url::parse(&row.url)
                && url.set_port(Some(address.port())).is_ok()
            {
                urls.push(url.to_string());
            }
            for url in urls {
                let failure = send(&transport, outgoing(url.clone())).await.expect_err(&url);
                assert!(matches!(failure, Failure::Refused(_) | Failure::Target(_)), "{url:?}: {failure}");
                tried += 1;
            }
        }
    }
    assert!(tried > 200, "{tried}");

    // The listener hears what may be heard; nothing came before.
    let _sent = send(
        &transport(anything()),
        outgoing(format!("http://127.0.0.1:{}/", address.port()))
            .with_timeouts(Duration::from_millis(100), Duration::from_millis(100)),
    )
    .await;
    until("the listener accepts", async || accepted.so_far() > 0).await;
    assert_eq!(accepted.so_far(), 1);
    accepting.abort();
}

#[tokio::test]
async fn c128_a_name_is_judged_again_for_each_look_up() {
    let names = Names::default().with("rebind.example", "8.8.8.8=>127.0.0.1");
    let first = vet(Policy::new(), &names, "https://rebind.example/").await.expect("a public address");
    assert_eq!(first, ["8.8.8.8:443".parse().expect("an address")]);
    let second = vet(Policy::new(), &names, "https://rebind.example/").await.expect_err("this machine");
    let Failure::Refused(refusal) = second else { panic!("{second}") };
    assert_eq!(refusal.host(), "rebind.example");
    assert_eq!(refusal.address(), Some("127.0.0.1".parse().expect("an address")));
    assert_eq!(refusal.rule().to_string(), "127.0.0.0/8 is loopback");
    assert_eq!(refusal.flag(), "--allow 127.0.0.1/32:443");
}

/// Two addresses of this machine on one port: 127.0.0.2, which is allowed, and 127.0.0.1, which must hear nothing.
async fn allowed_and_victim(
    tls: Option<tokio_rustls::TlsAcceptor>,
    answer: fn() -> Response<Full<bytes::Bytes>>,
) -> (Receiver, Receiver) {
    // Another test may have the port on the other address: take the next one.
    for _ in 0..100 {
        let allowed = Receiver::on("127.0.0.2:0", tls.clone(), move |_| answer()).await;
        let same_port = format!("127.0.0.1:{}", allowed.address.port());
        if std::net::TcpListener::bind(&same_port).is_ok() {
            let victim = Receiver::on(&same_port, tls, move |_| answer()).await;
            return (allowed, victim);
        }
    }
    panic!("no port is free on both addresses");
}

fn ok() -> Response<Full<bytes::Bytes>> {
    Response::new(Full::default())
}

fn ok_and_close() -> Response<Full<bytes::Bytes>> {
    Response::builder().header("connection", "close").body(Full::default()).expect("a response")
}

#[tokio::test]
async fn c128_a_name_that_changes_between_attempts_is_not_followed() {
    let (allowed, victim) = allowed_and_victim(None, ok_and_close).await;
    let names = Names::default().with("rebind.example", "127.0.0.2=>127.0.0.1");
    let guard = Guard::new(only(&["127.0.0.2"])).with_resolver(names.clone());
    let transport = builder(guard).build().expect("a transport");
    let url = format!("http://rebind.example:{}/", allowed.address.port());

    let answer = send(&transport, outgoing(&*url)).await.expect("the first look-up leads to where it may");
    assert_eq!(answer.address, Some(allowed.address));
    // The connection was closed: a retry makes a new one, and looks up again.
    let retry = send(&transport, outgoing(&*url)).await.expect_err("the second look-up leads inside");
    assert!(matches!(retry, Failure::Refused(_)), "{retry}");
    assert_eq!((names.lookups.so_far(), allowed.seen().len(), victim.connections.so_far()), (2, 1, 0));
}

#[tokio::test]
async fn c128_a_connection_that_is_used_again_leads_where_it_led() {
    let (allowed, victim) = allowed_and_victim(None, ok).await;
    let names = Names::default().with("rebind.example", "127.0.0.2=>127.0.0.1");
    let guard = Guard::new(only(&["127.0.0.2"])).with_resolver(names.clone());
    // Long enough for any machine.
    let transport = builder(guard).idle_timeout(Duration::from_secs(60)).build().expect("a transport");
    let url = format!("http://rebind.example:{}/", allowed.address.port());
    for _ in 0..3 {
        let answer = send(&transport, outgoing(&*url)).await.expect("an answer");
        assert_eq!(answer.address, Some(allowed.address));
    }
    assert_eq!(allowed.connections.so_far(), 1, "pooling is kept");
    assert_eq!((names.lookups.so_far(), victim.connections.so_far()), (1, 0));
}

#[tokio::test]
async fn c128_a_connection_is_not_shared_with_another_name_that_its_certificate_covers() {
    let identity = identity(&["a.example", "b.example"]);
    let (allowed, victim) = allowed_and_victim(Some(acceptor(&identity, &[b"h2"])), ok).await;
    let names = Names::default().with("a.example", "127.0.0.2").with("b.example", "127.0.0.1");
    let guard = Guard::new(only(&["127.0.0.2"])).with_resolver(names);
    let transport = HttpTransport::builder(guard).tls(trusting(&identity)).build().expect("a transport");
    let port = allowed.address.port();

    send(&transport, outgoing(format!("https://a.example:{port}/"))).await.expect("an answer");
    let other = send(&transport, outgoing(format!("https://b.example:{port}/"))).await.expect_err("it leads inside");
    assert!(matches!(other, Failure::Refused(_)), "{other}");
    assert_eq!(allowed.seen()[0].version, http::Version::HTTP_2);
    assert_eq!((allowed.seen().len(), victim.connections.so_far()), (1, 0));
}

#[tokio::test]
async fn a_name_with_one_denied_address_is_denied_whichever_comes_first() {
    for answers in ["8.8.8.8,127.0.0.1", "127.0.0.1,8.8.8.8", "1.1.1.1,::1,9.9.9.9"] {
        let names = Names::default().with("mixed.example", answers);
        let denied = vet(Policy::new(), &names, "https://mixed.example/").await.expect_err(answers);
        assert!(matches!(denied, Failure::Refused(_)), "{denied}");
    }
}

#[tokio::test]
async fn c139_a_name_without_an_answer_is_not_called_and_is_tried_again_later() {
    let outcome = vet(Policy::new(), &Names::default(), "https://gone.example/").await.expect_err("no answer");
    assert_eq!(outcome, Failure::Dns { host: "gone.example".into(), reason: "no such name".into() });
    assert_eq!(outcome.kind(), "dns");

    let names = Names::default();
    names.answers.lock().expect("no panic in here").insert("empty.example".into(), vec![Vec::new()]);
    let empty = vet(anything(), &names, "https://empty.example/").await.expect_err("no address");
    assert_eq!(empty.kind(), "dns");

    let guard = Guard::new(anything()).with_resolver(Silent).with_lookup_timeout(Duration::from_millis(20));
    let silent = send(&builder(guard).build().expect("a transport"), outgoing("https://slow.example/")).await;
    assert_eq!(silent, Err(Failure::Timeout(Stage::Resolve)));

    for failure in [outcome, empty, silent.expect_err("no answer")] {
        let verdict = classify(&Err(failure), &"4xx=permanent".parse().expect("overrides"), Default::default());
        assert!(matches!(verdict, Verdict::Retry(_)), "{verdict:?}");
    }
}

/// Never answers.
#[derive(Debug)]
struct Silent;

impl Resolve for Silent {
    fn resolve<'a>(&'a self, _: &'a str) -> ResolveFuture<'a> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn c141_an_exception_works_for_what_it_names_and_for_nothing_beside_it() {
    let elsewhere = Receiver::ok().await;
    let location = elsewhere.url();
    let redirecting = move |seen: &super::Seen| match &*seen.path {
        "/hook" => Response::new(Full::default()),
        _ => Response::builder().status(307).header("location", &location).body(Full::default()).expect("a response"),
    };
    let receiver = Receiver::on("127.0.0.2:0", None, redirecting).await;
    let port = receiver.address.port();
    let transport = transport(only(&[&format!("127.0.0.2/32:{port}")]));

    let answer = send(&transport, outgoing(receiver.url())).await.expect("it is excepted");
    assert_eq!(answer.status, StatusCode::OK);
    for url in [format!("http://127.0.0.3:{port}/"), "http://127.0.0.2:22/".to_owned(), elsewhere.url()] {
        assert!(matches!(send(&transport, outgoing(&*url)).await, Err(Failure::Refused(_))), "{url}");
    }
    let answer = send(&transport, outgoing(format!("http://127.0.0.2:{port}/elsewhere"))).await.expect("an answer");
    assert_eq!(answer.status, StatusCode::TEMPORARY_REDIRECT);
    assert_eq!(elsewhere.connections.so_far(), 0);
}

#[tokio::test]
async fn c140_a_proxy_in_the_environment_is_not_used() {
    // The environment is read here, in a process of its own, by whatever would read it.
    const CHILD: &str = "COUNTERSIGN_TEST_BEHIND_PROXY";
    if let Ok(url) = std::env::var(CHILD) {
        let answer = send(&transport(anything()), outgoing(&*url)).await.expect("an answer");
        assert_eq!(answer.status, StatusCode::OK);
        return;
    }
    let (proxy, receiver) = (Receiver::ok().await, Receiver::ok().await);
    let proxy_url = format!("http://{}", proxy.address);
    let mut child = Command::new(std::env::current_exe().expect("this program"));
    child.args(["--exact", "send::destinations::c140_a_proxy_in_the_environment_is_not_used", "--nocapture"]);
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"] {
        child.env(name, &proxy_url);
    }
    child.env_remove("NO_PROXY").env_remove("no_proxy").env(CHILD, receiver.url());
    let output = tokio::task::spawn_blocking(move || child.output()).await.expect("no panic").expect("a process");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert_eq!((proxy.connections.so_far(), receiver.seen().len()), (0, 1));
}

#[tokio::test]
async fn an_address_that_refuses_gives_way_to_the_next_one() {
    let receiver = Receiver::on("127.0.0.2:0", None, |_| ok()).await;
    let names = Names::default().with("two.example", "127.0.0.3,127.0.0.2");
    let guard = Guard::new(anything()).with_resolver(names);
    let transport = builder(guard).build().expect("a transport");
    let url = format!("http://two.example:{}/", receiver.address.port());
    let answer = send(&transport, outgoing(url)).await.expect("an answer");
    assert_eq!(answer.address, Some(receiver.address));
}

#[tokio::test]
async fn the_same_judge_answers_whoever_only_asks() {
    let refused = |failure: Failure| -> Refusal {
        match failure {
            Failure::Refused(refusal) => refusal,
            other => panic!("{other}"),
        }
    };
    let target: Target = "http://127.0.0.1/".parse().expect("a target");
    let policy = Policy::new().allow_http();
    let by_policy = policy.check(&target).expect_err("loopback");
    let by_guard = refused(Guard::new(policy.clone()).vet(&target).await.expect_err("loopback"));
    let by_transport = refused(send(&transport(policy), outgoing("http://127.0.0.1/")).await.expect_err("loopback"));
    assert_eq!(by_policy, by_guard);
    assert_eq!(by_policy, by_transport);
    let public: Target = "http://93.184.215.14/".parse().expect("a target");
    assert_eq!(Policy::new().check(&public).expect_err("http").rule(), Rule::PlainHttp);
}

#[tokio::test]
async fn a_url_that_is_none_is_a_failure_of_its_own() {
    let sent = Transport::send(&transport(anything()), Outgoing::new("nonsense", HeaderMap::new(), "")).await;
    assert!(matches!(sent, Err(Failure::Target(TargetError::Relative))), "{sent:?}");
}
