//! The situations, in the order of the table.

use std::future::Future;
use std::pin::Pin;
use std::process::Stdio;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, StatusCode};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use countersign::signature::Scheme;
use countersign::store::{InboxStore as _, Receipt, ReceiptState};
use countersign::{Clock, SystemClock};

use super::stage::{Answer, BODY_LIMIT, DEFERRED, LEASE, MAX_ATTEMPTS, SECRET, SOURCE, STRICT, Stage};
use super::{Row, sending};
use crate::error::CliError;

type Play = for<'a> fn(&'a Stage) -> Pin<Box<dyn Future<Output = Result<Row, CliError>> + Send + 'a>>;

/// All of them.
pub(crate) const ALL: [Play; 28] = [
    |stage| Box::pin(unsigned(stage)),
    |stage| Box::pin(forged(stage)),
    |stage| Box::pin(stale(stage)),
    |stage| Box::pin(too_large(stage)),
    |stage| Box::pin(too_slow(stage)),
    |stage| Box::pin(first_delivery(stage)),
    |stage| Box::pin(repeat(stage)),
    |stage| Box::pin(repeat_of_a_quick_run(stage)),
    |stage| Box::pin(repeat_of_a_slow_run(stage)),
    |stage| Box::pin(simultaneous(stage)),
    |stage| Box::pin(other_body(stage)),
    |stage| Box::pin(other_body_of_a_provider(stage)),
    |stage| Box::pin(failing(stage)),
    |stage| Box::pin(panicking(stage)),
    |stage| Box::pin(hanging(stage)),
    |stage| Box::pin(permanent(stage)),
    |stage| Box::pin(held(stage)),
    |stage| Box::pin(used_up(stage)),
    |stage| Box::pin(deferred(stage)),
    |stage| Box::pin(hung_up_and_killed(stage)),
    |stage| Box::pin(no_store(stage)),
    |stage| Box::pin(sending::delivered(stage)),
    |stage| Box::pin(sending::retried(stage)),
    |stage| Box::pin(sending::refused(stage)),
    |stage| Box::pin(sending::replayed(stage)),
    |stage| Box::pin(sending::repeated(stage)),
    |stage| Box::pin(sending::ordered(stage)),
    |stage| Box::pin(sending::denied(stage)),
];

async fn unsigned(stage: &Stage) -> Result<Row, CliError> {
    let mut row = Row::new("signature absent", "a POST without any webhook header");
    let answer = stage.post(stage.receiver, HeaderMap::new(), "{}").await?;
    row.expect(answer.status == StatusCode::UNAUTHORIZED, "401");
    row.answered = answer.to_string();
    nothing_stored(stage, &mut row, "").await
}

async fn forged(stage: &Stage) -> Result<Row, CliError> {
    let mut row = Row::new("signature wrong", "a signed event, one byte of its body changed");
    let headers = Stage::signed(&Scheme::standard(), "forged", SystemClock.now(), b"amount 1")?;
    let answer = stage.post(stage.receiver, headers, "amount 9").await?;
    let unsigned = stage.post(stage.receiver, HeaderMap::new(), "{}").await?;
    row.expect(answer.status == StatusCode::UNAUTHORIZED, "401");
    row.expect(answer.body == unsigned.body, "the same body as for every other cause");
    row.answered = answer.to_string();
    nothing_stored(stage, &mut row, "forged").await
}

async fn stale(stage: &Stage) -> Result<Row, CliError> {
    let mut row = Row::new("timestamp outside the window", "an event signed 301 s ago, and one signed 301 s ahead");
    let now = SystemClock.now();
    let span = Duration::from_secs(302);
    for at in [now.saturating_sub(span), now.saturating_add(span)] {
        let headers = Stage::signed(&Scheme::standard(), "stale", at, b"{}")?;
        let answer = stage.post(stage.receiver, headers, "{}").await?;
        row.expect(answer.status == StatusCode::UNAUTHORIZED, "401");
        row.answered = format!("both: {answer}");
    }
    nothing_stored(stage, &mut row, "stale").await
}

async fn too_large(stage: &Stage) -> Result<Row, CliError> {
    let mut row = Row::new("body over the limit", format!("a signed event of {} bytes", BODY_LIMIT + 1));
    let answer = stage.deliver("large", &"x".repeat(BODY_LIMIT + 1)).await?;
    row.expect(answer.status == StatusCode::PAYLOAD_TOO_LARGE, "413");
    row.answered = answer.to_string();
    nothing_stored(stage, &mut row, "large").await
}

async fn too_slow(stage: &Stage) -> Result<Row, CliError> {
    let mut row = Row::new("body too slow", "signed headers, 1 byte of 10, then silence");
    let headers = Stage::signed(&Scheme::standard(), "slow", SystemClock.now(), b"0123456789")?;
    let mut socket = connect(stage, &headers, 10, b"0").await?;
    let mut head = String::new();
    BufReader::new(&mut socket).read_line(&mut head).await.map_err(lost)?;
    row.expect(head.starts_with("HTTP/1.1 408 "), "408");
    head.trim_end().clone_into(&mut row.answered);
    nothing_stored(stage, &mut row, "slow").await
}

async fn first_delivery(stage: &Stage) -> Result<Row, CliError> {
    let mut row = Row::new("first delivery, handler answers 2xx", "event first");
    let answer = stage.deliver("first", "ok").await?;
    row.expect(answer.status == StatusCode::OK && answer.body == "run 1", "the handler's response");
    row.expect(!answer.is_replay(), "not marked as a repeat");
    row.answered = answer.to_string();
    stored(stage, &mut row, "first", ReceiptState::Succeeded, 1).await
}

async fn repeat(stage: &Stage) -> Result<Row, CliError> {
    let mut row = Row::new("repeat of a succeeded event", "event first, again");
    let answer = stage.deliver("first", "ok").await?;
    row.expect(answer.status == StatusCode::OK && answer.body == "run 1" && answer.is_replay(), "the stored response");
    row.expect(answer.headers.contains_key("x-handled-by"), "with its headers");
    row.expect(stage.handler.runs("first") == 1, "the handler not run again");
    row.answered = answer.to_string();
    stored(stage, &mut row, "first", ReceiptState::Succeeded, 1).await
}

async fn repeat_of_a_quick_run(stage: &Stage) -> Result<Row, CliError> {
    let mut row = Row::new("repeat while a quick first one runs", "event quick twice; the handler takes 100 ms");
    let (one, two) = tokio::join!(stage.deliver("quick", "take a moment"), stage.deliver("quick", "take a moment"));
    let (one, two) = (one?, two?);
    row.expect(one.status == StatusCode::OK && two.status == StatusCode::OK, "both answered 200");
    row.expect(one.is_replay() != two.is_replay(), "one of them from the store");
    row.expect(stage.handler.runs("quick") == 1, "one run");
    row.answered = format!("{one} · {two}");
    stored(stage, &mut row, "quick", ReceiptState::Succeeded, 1).await
}

async fn repeat_of_a_slow_run(stage: &Stage) -> Result<Row, CliError> {
    let mut row = Row::new("repeat while a slow first one runs", "event slow-run twice; the handler takes 1 s");
    let (one, two) =
        tokio::join!(stage.deliver("slow-run", "take one second"), stage.deliver("slow-run", "take one second"));
    let (one, two) =
        if one.as_ref().is_ok_and(|one| one.status == StatusCode::OK) { (one?, two?) } else { (two?, one?) };
    row.expect(one.status == StatusCode::OK, "one of them answered 200");
    row.expect(two.status == StatusCode::CONFLICT, "the other one 409");
    row.expect(two.retry_after().is_some_and(|seconds| (1..=30).contains(&seconds)), "with Retry-After of 1 to 30 s");
    row.answered = format!("{one} · {two}");
    stored(stage, &mut row, "slow-run", ReceiptState::Succeeded, 1).await
}

async fn simultaneous(stage: &Stage) -> Result<Row, CliError> {
    const COPIES: usize = 50;
    let mut row = Row::new("many duplicates at the same moment", format!("event many, {COPIES} times at once"));
    let answers = futures_util::future::join_all((0..COPIES).map(|_| stage.deliver("many", "take a moment"))).await;
    let answers = answers.into_iter().collect::<Result<Vec<Answer>, _>>()?;
    let fresh = answers.iter().filter(|answer| answer.status == StatusCode::OK && !answer.is_replay()).count();
    let replayed = answers.iter().filter(|answer| answer.status == StatusCode::OK && answer.is_replay()).count();
    let waiting = answers.iter().filter(|answer| answer.status == StatusCode::CONFLICT).count();
    row.expect(fresh == 1, "one answer from the handler");
    row.expect(replayed + waiting == COPIES - 1, "all others from the store, or 409");
    row.expect(stage.handler.runs("many") == 1, "one run");
    row.answered = format!("{fresh} from the handler, {replayed} from the store, {waiting} × 409");
    stored(stage, &mut row, "many", ReceiptState::Succeeded, 1).await
}

async fn other_body(stage: &Stage) -> Result<Row, CliError> {
    let mut row = Row::new("same signed id, other body", "event first, with another body, rightly signed");
    let answer = stage.deliver("first", "other").await?;
    row.expect(answer.status == StatusCode::CONFLICT && answer.retry_after().is_none(), "409, for good");
    row.answered = answer.to_string();
    let counted = stage.receipt(SOURCE, "first").await?.map_or(0, |receipt| receipt.other_bodies);
    row.expect(counted == 1, "counted on the receipt");
    stored(stage, &mut row, "first", ReceiptState::Succeeded, 1).await
}

async fn other_body_of_a_provider(stage: &Stage) -> Result<Row, CliError> {
    let mut row = Row::new("same signed id, other body, from a provider that does so", "stripe's evt_1 in two forms");
    let mut last = None;
    for body in [r#"{"id":"evt_1","pending_webhooks":2}"#, r#"{"id":"evt_1","pending_webhooks":1}"#] {
        let headers = Stage::signed(&Scheme::stripe(), "evt_1", SystemClock.now(), body.as_bytes())?;
        last = Some(stage.post(stage.stripe, headers, body).await?);
    }
    if let Some(answer) = last {
        row.expect(answer.status == StatusCode::OK && answer.is_replay(), "the stored response");
        row.answered = answer.to_string();
    }
    let receipt = stage.receipt("demo-stripe", "evt_1").await?;
    row.expect(receipt.as_ref().is_some_and(|receipt| receipt.other_bodies == 1), "counted on the receipt");
    row.stored = describe(receipt.as_ref());
    Ok(row)
}

async fn failing(stage: &Stage) -> Result<Row, CliError> {
    let mut row = Row::new("handler answers 500, then 200", "event fails, twice");
    let one = stage.deliver("fails", "first 500").await?;
    let between = describe(stage.receipt(SOURCE, "fails").await?.as_ref());
    row.expect(between.starts_with("failed"), "failed after the first");
    let two = stage.deliver("fails", "first 500").await?;
    row.expect(one.status == StatusCode::INTERNAL_SERVER_ERROR, "the handler's 500");
    row.expect(two.status == StatusCode::OK && !two.is_replay(), "then a run of its own");
    row.answered = format!("{one} · {two}");
    stored(stage, &mut row, "fails", ReceiptState::Succeeded, 2).await
}

async fn panicking(stage: &Stage) -> Result<Row, CliError> {
    let mut row = Row::new("handler panics, then answers", "event panics, twice");
    let one = stage.deliver("panics", "panic").await?;
    let two = stage.deliver("panics", "panic").await?;
    row.expect(one.status == StatusCode::INTERNAL_SERVER_ERROR, "500");
    row.expect(two.status == StatusCode::OK && !two.is_replay(), "then a run of its own");
    row.answered = format!("{one} · {two}");
    stored(stage, &mut row, "panics", ReceiptState::Succeeded, 2).await
}

async fn hanging(stage: &Stage) -> Result<Row, CliError> {
    let mut row = Row::new("handler takes too long", "event hangs; handlers have 1.5 s");
    let answer = stage.deliver("hangs", "hang").await?;
    row.expect(answer.status == StatusCode::INTERNAL_SERVER_ERROR, "500");
    row.answered = answer.to_string();
    stored(stage, &mut row, "hangs", ReceiptState::Failed, 1).await
}

async fn permanent(stage: &Stage) -> Result<Row, CliError> {
    let mut row = Row::new("handler says permanent", "event hopeless, twice");
    let one = stage.deliver("hopeless", "permanent").await?;
    let two = stage.deliver("hopeless", "permanent").await?;
    row.expect(one.status == StatusCode::UNPROCESSABLE_ENTITY && !one.is_replay(), "the handler's 422");
    row.expect(two.status == StatusCode::UNPROCESSABLE_ENTITY && two.is_replay(), "then the stored 422");
    row.answered = format!("{one} · {two}");
    stored(stage, &mut row, "hopeless", ReceiptState::DeadLetter, 1).await
}

async fn held(stage: &Stage) -> Result<Row, CliError> {
    let mut row = Row::new(
        "profile strict: handler panics, repeated, concluded by an operator, repeated again",
        "event payout, three times, to a receiver that runs nothing twice of which nobody can tell what came of it",
    );
    let deliver = async || {
        let headers = Stage::signed(&Scheme::standard(), "payout", SystemClock.now(), b"panic")?;
        stage.post(stage.strict, headers, "panic").await
    };
    let (one, two) = (deliver().await?, deliver().await?);
    let held = stage.receipt(STRICT, "payout").await?;
    row.expect(one.status == StatusCode::SERVICE_UNAVAILABLE && !one.is_replay(), "503");
    row.expect(two.status == StatusCode::SERVICE_UNAVAILABLE && two.is_replay(), "503 to repeats");
    row.expect(held.as_ref().is_some_and(|held| held.state == ReceiptState::DeadLetter), "held");
    if let Some(held) = held {
        let concluded = stage.store.conclude(held.key).await;
        concluded.map_err(|error| CliError::unreachable(error.to_string()))?;
    }
    let three = deliver().await?;
    row.expect(three.status == StatusCode::OK && three.is_replay(), "then 200");
    row.expect(stage.handler.runs("payout") == 1, "one run");
    row.answered = format!("{one} · {two} · {three}");
    let receipt = stage.receipt(STRICT, "payout").await?;
    let as_expected = receipt.as_ref().is_some_and(|receipt| receipt.state == ReceiptState::Succeeded);
    row.expect(as_expected, "succeeded");
    row.stored = describe(receipt.as_ref());
    Ok(row)
}

async fn used_up(stage: &Stage) -> Result<Row, CliError> {
    let mut row = Row::new("attempts used up", format!("event fails-always, {} times", MAX_ATTEMPTS + 1));
    let mut answers = Vec::new();
    for _ in 0..=MAX_ATTEMPTS {
        answers.push(stage.deliver("fails-always", "always 500").await?);
    }
    row.expect(answers.iter().all(|answer| answer.status == StatusCode::INTERNAL_SERVER_ERROR), "500 each time");
    row.expect(answers.last().is_some_and(Answer::is_replay), "the last one from the store");
    row.expect(stage.handler.runs("fails-always") == MAX_ATTEMPTS, "no run beyond the limit");
    row.answered = answers.iter().map(ToString::to_string).collect::<Vec<_>>().join(" · ");
    stored(stage, &mut row, "fails-always", ReceiptState::DeadLetter, MAX_ATTEMPTS).await
}

async fn deferred(stage: &Stage) -> Result<Row, CliError> {
    let mut row = Row::new(
        "deferred mode: accepted, repeated, run with a failure at first, repeated again",
        "event later to a receiver that answers before it runs; its first run answers 500",
    );
    let deliver = async || {
        let headers = Stage::signed(&Scheme::standard(), "later", SystemClock.now(), b"first 500, take a moment")?;
        stage.post(stage.deferred, headers, "first 500, take a moment").await
    };
    let (one, two) = (deliver().await?, deliver().await?);
    row.expect(one.status == StatusCode::ACCEPTED && one.body.is_empty(), "202 at once");
    row.expect(two.status == StatusCode::ACCEPTED && !two.is_replay(), "202 for a repeat before its end");
    until(|| async {
        let receipt = stage.receipt(DEFERRED, "later").await?;
        Ok(receipt.is_some_and(|receipt| receipt.state == ReceiptState::Succeeded))
    })
    .await?;
    let three = deliver().await?;
    row.expect(three.status == StatusCode::OK && three.is_replay(), "then the stored response");
    row.expect(stage.handler.runs("later") == 2, "two runs: one that failed, and one after a pause");
    row.answered = format!("{one} · {two} · {three}");
    let receipt = stage.receipt(DEFERRED, "later").await?;
    let as_expected = receipt.as_ref().is_some_and(|receipt| receipt.attempts == 2);
    row.expect(as_expected, "succeeded, 2 attempts");
    row.stored = describe(receipt.as_ref());
    Ok(row)
}

async fn hung_up_and_killed(stage: &Stage) -> Result<Row, CliError> {
    let mut row = Row::new(
        "sender hangs up; receiver killed while it handles an event",
        "event left, hung up at once, then again; event killed to a gateway that gets SIGKILL, then again",
    );
    let headers = Stage::signed(&Scheme::standard(), "left", SystemClock.now(), b"take a moment")?;
    let socket = connect(stage, &headers, 13, b"take a moment").await?;
    until(|| async { Ok(stage.handler.runs("left") == 1) }).await?;
    drop(socket);
    let succeeded = |receipt: Option<Receipt>| receipt.is_some_and(|receipt| receipt.state == ReceiptState::Succeeded);
    until(|| async { Ok(succeeded(stage.receipt(SOURCE, "left").await?)) }).await?;
    let left = stage.deliver("left", "take a moment").await?;
    row.expect(left.is_replay() && stage.handler.runs("left") == 1, "run once, its result stored for the repeat");

    kill_a_gateway(stage, "killed").await?;
    let early = stage.deliver("killed", "ok").await?;
    row.expect(early.status == StatusCode::CONFLICT, "409 while the dead one's lease lasts");
    tokio::time::sleep(LEASE).await;
    let late = stage.deliver("killed", "ok").await?;
    row.expect(late.status == StatusCode::OK && !late.is_replay(), "run again after it");
    row.answered = format!("{left} · {early} · {late}");
    stored(stage, &mut row, "killed", ReceiptState::Succeeded, 2).await
}

async fn no_store(stage: &Stage) -> Result<Row, CliError> {
    let mut row = Row::new("store not reachable", "event homeless, to a receiver whose store is gone");
    let headers = Stage::signed(&Scheme::standard(), "homeless", SystemClock.now(), b"ok")?;
    let answer = stage.post(stage.storeless, headers, "ok").await?;
    row.expect(answer.status == StatusCode::SERVICE_UNAVAILABLE && answer.retry_after().is_some(), "503, Retry-After");
    row.expect(stage.handler.runs("homeless") == 0, "the handler not run");
    row.answered = answer.to_string();
    nothing_stored(stage, &mut row, "homeless").await
}

/// Runs `countersign receive` on the same store, has it begin an event, and kills it in the middle.
async fn kill_a_gateway(stage: &Stage, id: &str) -> Result<(), CliError> {
    let program = std::env::current_exe().map_err(lost)?;
    let mut gateway = tokio::process::Command::new(program)
        .args(["receive", "--listen", "127.0.0.1:0", "--scheme", "standard", "--secret-env", "COUNTERSIGN_DEMO_SECRET"])
        .args(["--source", SOURCE, "--consumer", "default", "--lease", &LEASE.as_secs().to_string()])
        .arg("--upstream")
        .arg(format!("http://{}", stage.tar_pit))
        .arg("--store")
        .arg(format!("sqlite:{}", stage.database.display()))
        .env("COUNTERSIGN_DEMO_SECRET", SECRET)
        .env("RUST_LOG", "error")
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(lost)?;
    let stdout = gateway.stdout.take().ok_or_else(|| CliError::unreachable("the gateway has no stdout"))?;
    let ready = BufReader::new(stdout).lines().next_line().await.map_err(lost)?.unwrap_or_default();
    let address = ready
        .strip_prefix("listening on http://")
        .and_then(|address| address.parse().ok())
        .ok_or_else(|| CliError::unreachable(format!("the gateway did not start: {ready:?}")))?;

    let headers = Stage::signed(&Scheme::standard(), id, SystemClock.now(), b"ok")?;
    tokio::select! {
        answer = stage.post(address, headers, "ok") => {
            let answer = answer?;
            return Err(CliError::unreachable(format!("the gateway answered {answer} before it was killed")));
        }
        () = stage.reached.notified() => {}
    }
    gateway.kill().await.map_err(lost)
}

/// Waits for something that must happen soon.
async fn until<F>(holds: impl Fn() -> F) -> Result<(), CliError>
where
    F: Future<Output = Result<bool, CliError>>,
{
    for _ in 0..500 {
        if holds().await? {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Err(CliError::unreachable("the demo waited 5 s for something that did not happen"))
}

/// Opens a connection and sends the head of a request and the beginning of its body.
async fn connect(stage: &Stage, headers: &HeaderMap, length: usize, begin: &[u8]) -> Result<TcpStream, CliError> {
    let mut request =
        format!("POST / HTTP/1.1\r\nhost: {}\r\ncontent-length: {length}\r\n", stage.receiver).into_bytes();
    for (name, value) in headers {
        let value: &HeaderValue = value;
        request.extend_from_slice(name.as_str().as_bytes());
        request.extend_from_slice(b": ");
        request.extend_from_slice(value.as_bytes());
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"\r\n");
    request.extend_from_slice(begin);
    let mut socket = TcpStream::connect(stage.receiver).await.map_err(lost)?;
    socket.write_all(&request).await.map_err(lost)?;
    // The request has reached the handler's side of the socket before this side closes.
    socket.flush().await.map_err(lost)?;
    Ok(socket)
}

async fn stored(stage: &Stage, row: &mut Row, id: &str, state: ReceiptState, attempts: u32) -> Result<Row, CliError> {
    let receipt = stage.receipt(SOURCE, id).await?;
    let as_expected = receipt.as_ref().is_some_and(|found| found.state == state && found.attempts == attempts);
    row.expect(as_expected, &format!("{state}, {attempts} attempt(s)"));
    row.stored = describe(receipt.as_ref());
    Ok(std::mem::take(row))
}

async fn nothing_stored(stage: &Stage, row: &mut Row, id: &str) -> Result<Row, CliError> {
    let receipt = if id.is_empty() { None } else { stage.receipt(SOURCE, id).await? };
    row.expect(receipt.is_none(), "nothing stored");
    row.stored = describe(receipt.as_ref());
    Ok(std::mem::take(row))
}

fn describe(receipt: Option<&Receipt>) -> String {
    let Some(receipt) = receipt else { return "nothing".to_owned() };
    let mut text = format!("{}, {} attempt(s)", receipt.state, receipt.attempts);
    if let Some(result) = &receipt.result {
        text.push_str(&format!(", result {}", result.status.as_u16()));
    }
    if let Some(reason) = receipt.reason.as_ref().or(receipt.error.as_ref()) {
        text.push_str(&format!(", {reason:?}"));
    }
    if receipt.other_bodies > 0 {
        text.push_str(&format!(", {} other body", receipt.other_bodies));
    }
    text
}

#[expect(clippy::needless_pass_by_value, reason = "it is handed to `map_err`")]
fn lost(error: std::io::Error) -> CliError {
    CliError::unreachable(format!("the demo lost a connection: {error}"))
}
