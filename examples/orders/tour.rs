//! The tour: starts the services, places orders, and prints how they ended.

use std::collections::BTreeMap;
use std::error::Error;
use std::process::Stdio;
use std::time::{Duration, Instant};

use base64::Engine as _;
use bytes::Bytes;
use futures_util::StreamExt as _;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};

const SERVICES: [&str; 4] = ["orders", "stock", "payment", "notification"];
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) async fn run() -> Result<(), Box<dyn Error>> {
    let count = std::env::var("ORDERS_COUNT").ok().map(|text| text.parse()).transpose()?.unwrap_or(200);
    let folder = tempfile::tempdir()?;
    let mut settings = vec![("ORDERS_FOLDER".to_owned(), folder.path().display().to_string())];
    let mut urls = BTreeMap::new();
    for service in SERVICES {
        let free = TcpListener::bind("127.0.0.1:0").await?.local_addr()?;
        settings.push((format!("ORDERS_URL_{}", service.to_uppercase()), format!("http://{free}")));
        settings.push((format!("ORDERS_SECRET_{}", service.to_uppercase()), new_secret()?));
        urls.insert(service, free.to_string());
    }
    let mut processes = Vec::new();
    for service in SERVICES {
        processes.push(start(service, &urls[service], &settings).await?);
    }
    let orders = format!("http://{}/orders", urls["orders"]);
    let client = Client::builder(TokioExecutor::new()).build_http();

    let began = Instant::now();
    let placing = (0..count).map(|number| {
        let (client, orders) = (&client, &orders);
        async move { ask(client, Method::POST, orders, Some(order(number))).await.map(drop) }
    });
    let placed: Vec<_> = futures_util::stream::iter(placing).buffer_unordered(16).collect().await;
    placed.into_iter().collect::<Result<(), _>>()?;
    println!("{count} orders placed after {:?}", began.elapsed());

    let ended = loop {
        let steps = ask(&client, Method::GET, &orders, None).await?;
        let at = |step: &str| steps[step].as_u64().unwrap_or(0);
        if at("approved") + at("cancelled") == count {
            break steps;
        }
        if began.elapsed() > PATIENCE {
            return Err(format!("some orders are stuck: {steps}").into());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    println!("all ended after {:?}: {ended}", began.elapsed());
    for service in ["stock", "payment"] {
        println!("{service}: {}", ask(&client, Method::GET, &format!("http://{}/books", urls[service]), None).await?);
    }
    for (number, what) in [(1, "was approved"), (3, "could not be paid"), (0, "was out of stock")] {
        println!("\norder {number}, which {what}:");
        timeline(&ask(&client, Method::GET, &format!("{orders}/order-{number}"), None).await?);
    }
    for mut process in processes {
        stop(&mut process).await?;
    }
    Ok(())
}

/// Of three orders one must fail: for want of goods, or of money.
fn order(number: u64) -> Value {
    let (customer, quantity) = match number % 6 {
        0 => ("alice", 2_000_000),
        3 => ("broke", 1),
        _ => ("alice", 1),
    };
    json!({ "order": format!("order-{number}"), "customer": customer, "item": "book", "quantity": quantity, "cents": 1_999 })
}

fn timeline(order: &Value) {
    for step in order["history"].as_array().into_iter().flatten() {
        let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        let sent: Vec<String> = step["sent"].as_array().into_iter().flatten().map(|sent| text(&sent["type"])).collect();
        println!(
            "  {}  {:<16} {:<10} → {:<10} {}",
            text(&step["at"]),
            text(&step["event_type"]),
            text(&step["from"]),
            text(&step["to"]),
            sent.join(", ")
        );
    }
}

async fn start(service: &str, listen: &str, settings: &[(String, String)]) -> Result<Child, Box<dyn Error>> {
    let mut process = Command::new(std::env::current_exe()?)
        .arg(service)
        .env("LISTEN", listen)
        .envs(settings.iter().cloned())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let stdout = process.stdout.take().ok_or("no stdout")?;
    let mut lines = BufReader::new(stdout).lines();
    let first = lines.next_line().await?.ok_or_else(|| format!("{service} did not start"))?;
    println!("{service}: {first}");
    // What it prints in the end.
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    Ok(process)
}

async fn stop(process: &mut Child) -> Result<(), Box<dyn Error>> {
    if let Some(id) = process.id() {
        Command::new("kill").args(["-TERM", &id.to_string()]).status().await?;
    }
    process.wait().await?;
    Ok(())
}

async fn ask(
    client: &Client<HttpConnector, Full<Bytes>>,
    method: Method,
    url: &str,
    body: Option<Value>,
) -> Result<Value, Box<dyn Error>> {
    let body = body.map(|body| body.to_string()).unwrap_or_default();
    let request = Request::builder().method(method).uri(url).header("content-type", "application/json");
    let answer = client.request(request.body(Full::from(body))?).await?;
    let (status, body) = (answer.status(), answer.into_body().collect().await?.to_bytes());
    if !status.is_success() {
        return Err(format!("{url} answered {status}").into());
    }
    Ok(serde_json::from_slice(&body).unwrap_or(Value::Null))
}

fn new_secret() -> Result<String, Box<dyn Error>> {
    let mut random = [0; 32];
    getrandom::fill(&mut random).map_err(|error| error.to_string())?;
    Ok(format!("whsec_{}", base64::engine::general_purpose::STANDARD.encode(random)))
}
