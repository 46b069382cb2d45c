//! The task that writes: it makes one transaction of whatever is waiting.
//!
//! A durable commit costs a sync of the disk, hundreds of times what a row costs. So callers hand their calls to this
//! task, and it takes all that have gathered, carries them out in one transaction, and answers each after the commit.
//! A caller alone is committed at once. The more there are, the more share a commit; nobody waits for a timer. Many are two
//! batches in turn: one is with the database while those of the other hear, and ask for the next thing.
//!
//! It also means that no caller ever holds a transaction, so that a caller that is dropped cannot leave one open.
//!
//! # A commit whose answer is lost
//!
//! A connection to a server can break after `COMMIT` was sent. The batch is then done again on a new connection, and
//! finds out what stands: a reservation finds its own token and is its holder still; a renewal is the same twice; an end
//! finds that its token was the last one that ended a run there; an event that was taken in is known. What remains open is
//! small: another body may be counted twice, a `forget` may say that there was nothing, and a purge may count too little.
//! What a claim took is not found again: its leases run out, each of these runs counts, and then the events are due. Where no new connection can be had
//! either, callers get an error, and their leases decide.

use std::future::Future;
use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::join;
use tokio::sync::{mpsc, oneshot};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, timeout};

use super::fault::{self, Fault};
use super::transactor::{Done, Transactor};
use crate::Timestamp;
use crate::store::StoreError;

/// At most so many calls in one transaction: beyond this, rows cost more than the commit that they share.
pub(super) const MAX_CALLS: usize = 512;

/// So many are not made two batches: a statement and a sync for each would cost more than the wait for one.
const WHOLE: usize = 32;

/// About so many bytes in one, so that a burst of large bodies does not gather in memory twice.
const MAX_BYTES: usize = 8 * 1_024 * 1_024;

/// How long to leave a busy database to others before the next attempt.
const PAUSE: Duration = Duration::from_millis(10);

/// The same before a connection is made anew; twice as long before the next one, and so on.
const RECONNECT_PAUSE: Duration = Duration::from_millis(50);

/// How long the writer goes on with a batch that fails.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// With a database that is busy.
    pub(super) busy: Duration,
    /// How often to connect anew.
    pub(super) reconnects: u32,
    /// With one attempt that does not end. `None` where the database itself sees to that.
    pub(super) attempt: Option<Duration>,
}

/// What a writer can be asked, of the databases that can do it.
pub(super) trait Asked<D: Transactor>: Sized + Send + 'static {
    /// About how many bytes it brings, to keep a transaction from growing without bound.
    fn weight(&self) -> usize;

    /// Whether it need not be done, since its caller is gone.
    fn is_abandoned(&self) -> bool;

    /// Delivers the answer. Where its caller is gone, returns the calls that give back what it would have held.
    fn send(self) -> Vec<Self>;

    /// Answers with an error.
    fn refuse(self, error: StoreError);

    /// Whether [`at_once`](Self::at_once) gave it its answer.
    fn is_answered(&self) -> bool {
        false
    }

    /// Does what can be done without a transaction, durably, and gives these calls their answers. Where this fails, they
    /// may have been done all the same.
    fn at_once(_database: &mut D, _calls: &mut [Self]) -> impl Future<Output = Done> + Send {
        std::future::ready(Ok(()))
    }

    /// Gives every call its answer, to be delivered after the commit. Where this fails nothing may be committed.
    ///
    /// `again`: an earlier attempt at these calls may have been committed, and its answer was lost.
    fn carry_out(
        database: &mut D,
        calls: &mut [Self],
        now: Timestamp,
        again: bool,
    ) -> impl Future<Output = Done> + Send;
}

/// What comes to a writer.
#[derive(Debug)]
pub(super) enum Told<C> {
    Do(C),
    /// End after what is waiting. Answered when the connection is closed.
    Close(oneshot::Sender<()>),
}

#[derive(Debug)]
pub(super) struct Writer<C, D> {
    pub(super) told: mpsc::Receiver<Told<C>>,
    pub(super) database: D,
    pub(super) patience: Patience,
    /// After how long without a call the connection is let go. `None`: it is kept.
    pub(super) idle: Option<Duration>,
    pub(super) commits: Arc<AtomicU64>,
}

impl<C: Asked<D>, D: Transactor> Writer<C, D> {
    /// Ends when it is told to, or when the last handle of the store is gone; what is waiting then is still done.
    ///
    /// Where calls are waiting, those whose batch was committed are told when the next one is on its way: the database has
    /// work while they have theirs. So many callers fall into two halves, one of which is with the database.
    pub(super) async fn run(mut self) {
        let (mut closing, mut committed) = (Vec::new(), Vec::new());
        while let Some(first) = self.next(&mut committed).await {
            let batch = self.gather(first, committed.len(), &mut closing);
            if !closing.is_empty() {
                self.told.close();
            }
            let told = mem::take(&mut committed);
            // In this order: the batch has been sent when its answer is waited for, and then the others are told.
            let (done, mut untaken) = join!(biased; self.commit(batch), async { tell(told) });
            committed = done.untold;
            untaken.extend(done.untaken);
            if !untaken.is_empty() {
                // Giving back is one more transaction: whose own is committed does not wait for it.
                untaken.extend(tell(mem::take(&mut committed)));
                self.give_back(untaken).await;
            }
        }
        self.database.close().await;
        for done in closing {
            // Nobody waits: where the answer cannot be delivered its caller is gone.
            let _ = done.send(());
        }
    }

    /// What is waiting. Where nothing is, those whose batch was committed are told, and what comes then is next.
    async fn next(&mut self, committed: &mut Vec<C>) -> Option<Told<C>> {
        if let Ok(told) = self.told.try_recv() {
            return Some(told);
        }
        let untaken = tell(mem::take(committed));
        self.give_back(untaken).await;
        // Lets those who were just told ask again before the next batch is taken; a batch of the fastest one alone would
        // have all others wait for its sync.
        yield_now().await;
        if let Some(idle) = self.idle {
            match timeout(idle, self.told.recv()).await {
                Ok(told) => return told,
                Err(_elapsed) => self.database.close().await,
            }
        }
        self.told.recv().await
    }

    /// Takes what is waiting: no more than half of all callers that are known of, waiting or about to be told, once these
    /// are many. The whole would leave nobody to be waiting when it is done.
    fn gather(&mut self, first: Told<C>, committed: usize, closing: &mut Vec<oneshot::Sender<()>>) -> Vec<C> {
        let known = 1 + self.told.len() + committed;
        let most = known.div_ceil(2).clamp(WHOLE, MAX_CALLS);
        let (mut weight, mut batch) = (0, Vec::new());
        let mut next = Some(first);
        while let Some(told) = next {
            match told {
                Told::Do(call) => {
                    weight += call.weight();
                    batch.push(call);
                }
                Told::Close(done) => closing.push(done),
            }
            next = if batch.len() < most && weight < MAX_BYTES { self.told.try_recv().ok() } else { None };
        }
        batch
    }

    /// Does a batch. Where it fails because of one row, each call is done alone, so that none fails for another's sake.
    async fn commit(&mut self, mut batch: Vec<C>) -> Committed<C> {
        batch.retain(|call| !call.is_abandoned());
        let in_doubt = self.at_once(&mut batch).await;
        if batch.iter().all(C::is_answered) {
            return Committed { untold: batch, untaken: Vec::new() };
        }
        // What goes on now may take longer than these should wait.
        let mut untaken = tell(batch.extract_if(.., |call| call.is_answered()).collect());
        let mut untold = Vec::new();
        match self.transact(&mut batch, in_doubt).await {
            Ok(()) => {
                // What was claimed for somebody who is gone goes back before the next claim, not behind it.
                untaken.extend(tell(batch.extract_if(.., |call| call.is_abandoned()).collect()));
                untold = batch;
            }
            Err(error) if batch.len() > 1 && D::fault(&error) == Fault::Row => {
                tracing::warn!(%error, calls = batch.len(), "a batch failed for one of its rows: doing each alone");
                for call in batch {
                    let mut alone = [call];
                    let done = self.transact(&mut alone, in_doubt).await;
                    let [call] = alone;
                    match done {
                        Ok(()) => untaken.extend(call.send()),
                        Err(error) => call.refuse(refusal::<D>(&Arc::new(error))),
                    }
                }
            }
            Err(error) => {
                let error = Arc::new(error);
                batch.into_iter().for_each(|call| call.refuse(refusal::<D>(&error)));
            }
        }
        Committed { untold, untaken }
    }

    /// A caller may give up while its claim is carried out, and then nobody knows of what was claimed: attempts would be
    /// counted that nobody makes, and leases would have to run out first.
    async fn give_back(&mut self, mut untaken: Vec<C>) {
        if untaken.is_empty() {
            return;
        }
        if let Err(error) = self.transact(&mut untaken, false).await {
            tracing::warn!(%error, "what a caller claimed and did not wait for is due when its leases end");
        }
    }

    /// Whether what was to be done at once, and was not answered, may have been done all the same.
    async fn at_once(&mut self, batch: &mut [C]) -> bool {
        let limit = self.patience.attempt.unwrap_or(Duration::MAX);
        let error = match timeout(limit, C::at_once(&mut self.database, batch)).await {
            Ok(Ok(())) => {
                if batch.iter().any(C::is_answered) {
                    self.commits.fetch_add(1, Ordering::Relaxed);
                }
                return false;
            }
            Ok(Err(error)) if D::fault(&error) != Fault::Connection => {
                tracing::debug!(%error, "a batch was not done at once");
                return false;
            }
            Ok(Err(error)) => error,
            Err(_elapsed) => late(),
        };
        tracing::warn!(%error, "the store's connection failed: it will be made anew");
        self.database.disconnect();
        true
    }

    /// Tries until it is done, fails, or has been kept from the database for too long.
    async fn transact(&mut self, calls: &mut [C], mut again: bool) -> Result<(), sqlx::Error> {
        let deadline = Instant::now() + self.patience.busy;
        let mut reconnects = 0;
        loop {
            let Err(Failed { error, in_doubt }) = self.attempt(calls, again).await else {
                self.commits.fetch_add(1, Ordering::Relaxed);
                return Ok(());
            };
            again |= in_doubt;
            match D::fault(&error) {
                Fault::Busy if Instant::now() < deadline => sleep(PAUSE).await,
                Fault::Busy | Fault::Row => return Err(error),
                Fault::Connection => {
                    tracing::warn!(%error, "the store's connection failed: it will be made anew");
                    self.database.disconnect();
                    if reconnects >= self.patience.reconnects {
                        return Err(error);
                    }
                    sleep(RECONNECT_PAUSE * 2_u32.saturating_pow(reconnects)).await;
                    reconnects += 1;
                }
            }
        }
    }

    async fn attempt(&mut self, calls: &mut [C], again: bool) -> Result<(), Failed> {
        let Some(limit) = self.patience.attempt else { return attempt(&mut self.database, calls, again).await };
        let done = timeout(limit, attempt(&mut self.database, calls, again)).await;
        done.unwrap_or_else(|_| {
            // Given up as it is: what was under way may still be committed.
            self.database.disconnect();
            Err(Failed { error: late(), in_doubt: true })
        })
    }
}

/// What is left of a batch that was done.
struct Committed<C> {
    /// Those that can be told.
    untold: Vec<C>,
    /// The calls that give back what those who were told did not take.
    untaken: Vec<C>,
}

/// Delivers answers. Returns the calls that give back what nobody took.
fn tell<C: Asked<D>, D: Transactor>(committed: Vec<C>) -> Vec<C> {
    committed.into_iter().flat_map(C::send).collect()
}

fn late() -> sqlx::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the database did not answer in time").into()
}

/// What the callers of a batch that was not committed hear. A row that the database does not take it will never take.
fn refusal<D: Transactor>(error: &Arc<sqlx::Error>) -> StoreError {
    match D::fault(error) {
        Fault::Busy | Fault::Connection => fault::shared("writing", error),
        Fault::Row => StoreError::Rejected(error.to_string()),
    }
}

/// Why an attempt failed, and whether it may have been committed all the same.
struct Failed {
    error: sqlx::Error,
    in_doubt: bool,
}

impl From<sqlx::Error> for Failed {
    fn from(error: sqlx::Error) -> Self {
        Self { error, in_doubt: false }
    }
}

async fn attempt<C: Asked<D>, D: Transactor>(database: &mut D, calls: &mut [C], again: bool) -> Result<(), Failed> {
    let now = database.begin().await?;
    match C::carry_out(database, calls, now, again).await {
        Ok(()) => database.commit().await.map_err(|error| {
            let in_doubt = D::fault(&error) == Fault::Connection;
            Failed { error, in_doubt }
        }),
        Err(error) => {
            // The first error says more than that of a rollback on the same broken connection.
            if let Err(error) = database.rollback().await {
                tracing::debug!(%error, "a transaction was not rolled back in good order");
                database.disconnect();
            }
            Err(error.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::iter::repeat_n;
    use std::sync::{Mutex, PoisonError};

    use tokio::sync::watch;

    use super::super::call::Ask;
    use super::*;

    type Answer = oneshot::Receiver<Result<(), StoreError>>;

    #[tokio::test]
    async fn those_of_a_batch_are_told_while_the_next_one_is_under_way_and_of_a_failure_only_those_it_concerns() {
        let Started { mut answers, commit, log, .. } = start(repeat_n(What::Write, 2 * WHOLE));
        commit.send(()).await.expect("the writer waits for it");
        for answer in answers.drain(..WHOLE) {
            assert!(is_done(answer).await);
        }
        assert_eq!(*log.told_at.lock().expect("no panic"), [2; WHOLE], "the next one is with the database by then");
        assert!(answers.iter_mut().all(|answer| answer.try_recv().is_err()), "their commit is under way");
        drop(commit);
        for answer in answers {
            assert!(matches!(answer.await.expect("the writer goes on"), Err(StoreError::Unavailable { .. })));
        }
    }

    #[tokio::test]
    async fn few_share_one_commit_and_nobody_is_told_before_it() {
        let Started { mut answers, commit, log, commits, .. } = start(repeat_n(What::Write, WHOLE));
        log.until_begun(1).await;
        assert!(answers.iter_mut().all(|answer| answer.try_recv().is_err()), "their commit is under way");
        commit.send(()).await.expect("the writer waits for it");
        for answer in answers {
            assert!(is_done(answer).await);
        }
        assert_eq!(commits.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn whose_call_is_committed_hears_it_before_what_nobody_took_is_given_back() {
        let Started { mut answers, commit, log, .. } = start(a_claim_and_others());
        log.until_begun(1).await;
        // Its caller goes while it is carried out.
        drop(answers.remove(0));
        for _ in 0..2 {
            commit.send(()).await.expect("the writer waits for it");
        }
        for answer in answers {
            assert!(is_done(answer).await, "it hears it although giving back is not committed");
        }
        log.until_begun(3).await;
        commit.send(()).await.expect("the writer waits for it");
        log.until_given_back().await;
    }

    #[tokio::test]
    async fn what_was_claimed_is_given_back_where_the_caller_goes_between_the_commit_and_the_telling() {
        let Started { mut answers, commit, log, .. } = start(a_claim_and_others());
        *log.goes_after_commit.lock().expect("no panic") = Some(answers.remove(0));
        for _ in 0..3 {
            commit.send(()).await.expect("the writer waits for it");
        }
        log.until_given_back().await;
        for answer in answers {
            assert!(is_done(answer).await);
        }
    }

    #[tokio::test]
    async fn a_batch_that_is_done_row_by_row_keeps_nobody_waiting_who_can_be_told() {
        let second = [What::Write, What::Fail].into_iter().chain(repeat_n(What::Write, WHOLE - 2));
        let Started { mut answers, commit, .. } = start(repeat_n(What::Write, WHOLE).chain(second));
        commit.send(()).await.expect("the writer waits for it");
        let others = answers.split_off(WHOLE);
        for answer in answers {
            assert!(is_done(answer).await, "it hears it although nothing of the other batch is committed");
        }
        for (number, answer) in others.into_iter().enumerate() {
            if number == 1 {
                assert!(matches!(answer.await.expect("the writer goes on"), Err(StoreError::Rejected(_))));
            } else {
                commit.send(()).await.expect("the writer waits for it");
                assert!(is_done(answer).await, "it hears it although those behind it are not committed");
            }
        }
    }

    #[tokio::test]
    async fn a_writer_that_is_closed_tells_everybody_before_it_says_so() {
        let Started { answers, commit, log, queue, .. } = start(repeat_n(What::Write, 2 * WHOLE));
        let (closed, mut closing) = oneshot::channel();
        queue.send(Told::Close(closed)).await.expect("the writer goes on");
        for turn in 1..=2 {
            log.until_begun(turn).await;
            assert!(closing.try_recv().is_err(), "not before all is committed");
            commit.send(()).await.expect("the writer waits for it");
        }
        closing.await.expect("it is closed");
        for mut answer in answers {
            assert!(answer.try_recv().expect("it was told before").is_ok());
        }
        assert!(queue.is_closed());
    }

    /// Longer than anything takes that waits for nothing, however busy the machine is.
    const PATIENCE: Duration = Duration::from_secs(20);

    async fn is_done(answer: Answer) -> bool {
        timeout(PATIENCE, answer).await.expect("it is told").expect("the writer goes on").is_ok()
    }

    /// Two batches, the first call of which is a claim.
    fn a_claim_and_others() -> impl Iterator<Item = What> {
        [What::Claim].into_iter().chain(repeat_n(What::Write, 2 * WHOLE - 1))
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum What {
        Write,
        /// Is given back where its caller is gone.
        Claim,
        /// Is a row that the database does not take.
        Fail,
        GiveBack,
    }

    struct Started {
        answers: Vec<Answer>,
        /// Each lets one commit through. Without it they fail.
        commit: mpsc::Sender<()>,
        log: Arc<Log>,
        commits: Arc<AtomicU64>,
        queue: mpsc::Sender<Told<Test>>,
    }

    type Test = Ask<(What, Arc<Log>), ()>;

    /// What happened, and what is to happen.
    #[derive(Debug, Default)]
    struct Log {
        /// How many transactions have begun.
        begun: watch::Sender<u32>,
        is_given_back: watch::Sender<bool>,
        /// For each call that was told: how many transactions had begun by then.
        told_at: Mutex<Vec<u32>>,
        /// Whose caller goes when its commit is done.
        goes_after_commit: Mutex<Option<Answer>>,
    }

    impl Log {
        async fn until_begun(&self, transactions: u32) {
            let mut begun = self.begun.subscribe();
            let begun = begun.wait_for(|begun| *begun >= transactions);
            timeout(PATIENCE, begun).await.expect("it begins").expect("the writer goes on");
        }

        async fn until_given_back(&self) {
            let mut given_back = self.is_given_back.subscribe();
            let given_back = given_back.wait_for(|is_given_back| *is_given_back);
            timeout(PATIENCE, given_back).await.expect("it is given back").expect("the writer goes on");
        }
    }

    /// Starts a writer for which these calls are waiting.
    fn start(calls: impl Iterator<Item = What>) -> Started {
        let (queue, told) = mpsc::channel(4 * WHOLE);
        let log: Arc<Log> = Arc::default();
        let ask = |what| {
            let (ask, answer) = Ask::new((what, Arc::clone(&log)));
            queue.try_send(Told::Do(ask)).expect("there is room");
            answer
        };
        let answers = calls.map(ask).collect();
        let (commit, gate) = mpsc::channel(1);
        let patience = Patience { busy: Duration::ZERO, reconnects: 0, attempt: None };
        let commits: Arc<AtomicU64> = Arc::default();
        let database = Gated { gate, log: Arc::clone(&log), gives_back: false };
        tokio::spawn(Writer { told, database, patience, idle: None, commits: Arc::clone(&commits) }.run());
        Started { answers, commit, log, commits, queue }
    }

    /// A database that commits when the test says so.
    struct Gated {
        gate: mpsc::Receiver<()>,
        log: Arc<Log>,
        /// Whether what is under way gives something back.
        gives_back: bool,
    }

    impl Transactor for Gated {
        const ALONE: bool = true;

        fn fault(error: &sqlx::Error) -> Fault {
            if matches!(error, sqlx::Error::RowNotFound) { Fault::Row } else { Fault::Busy }
        }

        async fn begin(&mut self) -> Done<Timestamp> {
            self.log.begun.send_modify(|begun| *begun += 1);
            Ok(Timestamp::from_micros(0))
        }

        async fn commit(&mut self) -> Done {
            self.gate.recv().await.ok_or(sqlx::Error::WorkerCrashed)?;
            if self.gives_back {
                self.log.is_given_back.send_replace(true);
            }
            drop(self.log.goes_after_commit.lock().unwrap_or_else(PoisonError::into_inner).take());
            Ok(())
        }

        async fn rollback(&mut self) -> Done {
            Ok(())
        }

        fn disconnect(&mut self) {}

        async fn close(&mut self) {}
    }

    impl Asked<Gated> for Test {
        fn weight(&self) -> usize {
            1
        }

        fn is_abandoned(&self) -> bool {
            false
        }

        fn send(self) -> Vec<Self> {
            let (what, log) = self.question.clone();
            log.told_at.lock().unwrap_or_else(PoisonError::into_inner).push(*log.begun.borrow());
            let untaken = self.offer().filter(|()| what == What::Claim);
            untaken.map(|()| Self::new((What::GiveBack, log)).0).into_iter().collect()
        }

        fn refuse(self, error: StoreError) {
            Self::refuse(self, error);
        }

        async fn carry_out(database: &mut Gated, calls: &mut [Self], _: Timestamp, _: bool) -> Done {
            let is = |what| calls.iter().any(|ask| ask.question.0 == what);
            if is(What::Fail) {
                return Err(sqlx::Error::RowNotFound);
            }
            database.gives_back = is(What::GiveBack);
            calls.iter_mut().for_each(|ask| ask.answer = Some(Ok(())));
            Ok(())
        }
    }
}
