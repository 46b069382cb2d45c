//! The loop: claim for free slots, run, and stop without leaving anything behind.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use tokio::sync::Notify;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{debug, error, info, warn};

use super::backoff::{Backoff, chance, share};
use super::moment::after;
use crate::store::{Settled, StoreError};

/// A kind of work that several processes share out among them by leases.
pub(crate) trait Work: Send + Sync + 'static {
    /// Something to do, with the right to do it.
    type Item: Send + 'static;
    /// That right.
    type Lease: fmt::Debug + Send + 'static;

    /// Takes up to `free` items that are due.
    fn claim(&self, free: u32) -> impl Future<Output = Result<Vec<Self::Item>, StoreError>> + Send;

    /// The right to do this item.
    fn lease(&self, item: &Self::Item) -> Self::Lease;

    /// Does the item, holds on to its lease meanwhile, and settles it. It may be dropped at any point.
    fn run(&self, item: Self::Item) -> impl Future<Output = ()> + Send;

    /// Gives an item back that was dropped before it was settled.
    fn release(&self, lease: Self::Lease) -> impl Future<Output = Result<Settled, StoreError>> + Send;

    /// When there may be something that the last claim did not get, where that is known. The poll finds all else.
    fn next(&self) -> Option<Instant> {
        None
    }
}

/// How fast the loop goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// How many items are done at one time.
    pub(crate) slots: u32,
    /// How often to look for what is due, when nothing says that there is something; up to half as much again.
    pub(crate) poll: Duration,
    /// How long items that are being done may take once the loop is to stop.
    pub(crate) grace: Duration,
}

/// Does work until `stop` resolves and what was begun has ended, or was given back after the grace.
///
/// What is due is claimed when there may be something: at the start, at each poll, when an item has ended, and when
/// `hint` says so. A poll is the truth; a hint only makes it quicker. Only free slots are claimed for, so that nothing
/// waits under a lease, and memory is bounded by the slots. A store that fails is left alone for longer each time.
///
/// # Cancel safety
///
/// Where this is dropped, what is being done is dropped too, and its leases run out.
pub(crate) async fn run_until<W: Work>(work: Arc<W>, pace: Pace, hint: &Notify, stop: impl Future<Output = ()>) {
    let mut stop = std::pin::pin!(stop);
    let mut running = Running { work, tasks: JoinSet::new(), leases: HashMap::new() };
    let mut failures = 0_u32;
    loop {
        let free = pace.slots.saturating_sub(u32::try_from(running.tasks.len()).unwrap_or(u32::MAX));
        let mut pause = pace.poll.saturating_add(share(pace.poll / 2, chance()));
        if free > 0 {
            let asked = free.min(MOST_AT_ONCE);
            match running.claim(asked).await {
                Ok(items) => {
                    failures = 0;
                    if free > asked && u32::try_from(items.len()) == Ok(asked) {
                        pause = Duration::ZERO;
                    }
                    items.into_iter().for_each(|item| running.begin(item));
                }
                Err(error) => {
                    failures = failures.saturating_add(1);
                    pause = Backoff::new(pace.poll, LONGEST_PAUSE.max(pace.poll)).by_chance(failures);
                    warn!(%error, "nothing could be claimed; the next try is in {pause:?}");
                }
            }
        }
        // Neither the work nor hints and ends hurry a store that fails.
        let now = Instant::now();
        let mut until = after(now, pause);
        if failures == 0
            && free > 0
            && let Some(next) = running.work.next()
        {
            until = until.min(next.max(now + SHORTEST_PAUSE));
        }
        loop {
            tokio::select! {
                biased;
                () = &mut stop => return running.stop(pace.grace).await,
                Some(ended) = running.tasks.join_next_with_id() => {
                    running.reap(ended);
                    // One claim for all slots that have become free meanwhile.
                    while let Some(ended) = running.tasks.try_join_next_with_id() {
                        running.reap(ended);
                    }
                    if failures == 0 { break }
                }
                () = hint.notified(), if failures == 0 => break,
                () = sleep_until(until) => break,
            }
        }
    }
}

/// What one claim is for, however many slots are free: claims are transactions, and others wait for them.
const MOST_AT_ONCE: u32 = 64;
/// Least time between a claim and the next one that only the time calls for.
const SHORTEST_PAUSE: Duration = Duration::from_millis(2);
/// Longest pause between two tries of a store that fails.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How long giving one item back may take. Its lease runs out by itself.
const RELEASE_TIME: Duration = Duration::from_secs(5);

/// What is being done.
struct Running<W: Work> {
    work: Arc<W>,
    tasks: JoinSet<()>,
    leases: HashMap<Id, W::Lease>,
}

impl<W: Work> Running<W> {
    /// What panics in a claim may be the row of one item: everything else must go on, after a pause.
    async fn claim(&self, free: u32) -> Result<Vec<W::Item>, StoreError> {
        let claimed = AssertUnwindSafe(self.work.claim(free)).catch_unwind().await;
        claimed.unwrap_or_else(|_panic| {
            error!("a claim panicked: what it had claimed waits for the end of its lease");
            Err(StoreError::Unavailable { reason: "the claim panicked".to_owned(), source: None })
        })
    }

    fn begin(&mut self, item: W::Item) {
        let lease = self.work.lease(&item);
        let work = Arc::clone(&self.work);
        let task = self.tasks.spawn(async move { work.run(item).await });
        self.leases.insert(task.id(), lease);
    }

    /// Forgets what has ended. Returns the lease of one that was dropped.
    fn reap(&mut self, ended: Result<(Id, ()), JoinError>) -> Option<W::Lease> {
        match ended {
            Ok((id, ())) => {
                self.leases.remove(&id);
                None
            }
            Err(ended) => {
                let lease = self.leases.remove(&ended.id());
                if ended.is_cancelled() {
                    return lease;
                }
                // Not given back: it would do so again at once. Its lease runs out, and that run counts.
                error!(%ended, ?lease, "the handling of an item panicked");
                None
            }
        }
    }

    async fn stop(mut self, grace: Duration) {
        let left = self.tasks.len();
        if left > 0 {
            info!("stopping: nothing more is claimed; waiting for {left} items");
        }
        let in_time = timeout(grace, async {
            while let Some(ended) = self.tasks.join_next_with_id().await {
                self.reap(ended);
            }
        });
        if in_time.await.is_ok() {
            return;
        }
        // Given back only once they have really ended: until then nobody else may begin them.
        self.tasks.abort_all();
        let mut dropped = Vec::new();
        let all_ended = async {
            while let Some(ended) = self.tasks.join_next_with_id().await {
                dropped.extend(self.reap(ended));
            }
        };
        tokio::select! {
            () = all_ended => {}
            () = sleep(RELEASE_TIME) => {}
        }
        warn!("{} items were not done within {grace:?} and are dropped", dropped.len());
        join_all(dropped.into_iter().map(|lease| give_back(&*self.work, lease))).await;
    }
}

async fn give_back<W: Work>(work: &W, lease: W::Lease) {
    let named = format!("{lease:?}");
    match timeout(RELEASE_TIME, work.release(lease)).await {
        Ok(Ok(settled)) => debug!(lease = named, ?settled, "given back"),
        Ok(Err(error)) => warn!(lease = named, %error, "not given back: its lease runs out"),
        Err(_elapsed) => warn!(lease = named, "not given back: the store does not answer; its lease runs out"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::sync::{Mutex, PoisonError};

    use tokio_util::sync::CancellationToken;

    use super::*;

    const PACE: Pace = Pace { slots: 3, poll: Duration::from_secs(1), grace: Duration::from_secs(10) };

    #[tokio::test(start_paused = true)]
    async fn c078_only_free_slots_are_claimed_for_and_all_is_done() {
        let work = Jobs::new((0..20).map(|_| Job::Takes(Duration::from_secs(5))));
        let began = Instant::now();
        work.until_done(20).await;
        assert_eq!(work.most_at_once.load(SeqCst), 3);
        assert!(work.claimed_for.lock().expect("no panic").iter().all(|free| (1..=3).contains(free)));
        assert!(began.elapsed() < Duration::from_secs(40), "a slot that is free is filled at once");
    }

    #[tokio::test(start_paused = true)]
    async fn many_free_slots_are_filled_without_a_wait_in_claims_of_a_moderate_size() {
        let work = Jobs::new((0..500).map(|_| Job::Takes(Duration::from_secs(60))));
        let wide = Pace { slots: 1_000, poll: Duration::from_secs(3_600), grace: Duration::ZERO };
        let stop = sleep(Duration::from_secs(1));
        run_until(Arc::clone(&work), wide, &Notify::new(), stop).await;
        assert_eq!(work.most_at_once.load(SeqCst), 500);
        assert!(work.claimed_for.lock().expect("no panic").iter().all(|asked| *asked <= 64));
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_in_an_item_costs_that_item_alone_and_is_not_given_back() {
        let quick = Job::Takes(Duration::ZERO);
        let work = Jobs::new([Job::Panics, quick, Job::Panics, quick, Job::Panics, Job::Panics, quick]);
        work.until_done(3).await;
        assert!(work.released.lock().expect("no panic").is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_fails_is_asked_less_and_less_often_and_then_works_again() {
        let work = Jobs::new([Job::Takes(Duration::ZERO)]);
        work.faults.store(10, SeqCst);
        let began = Instant::now();
        let hint = Notify::new();
        let hints = async {
            loop {
                hint.notify_one();
                sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::select! {
            () = work.until_done_with(1, &hint) => {}
            () = hints => {}
        }
        // 1, 2, 4, 8, 16 and five times 30 seconds at least, and twice that at most.
        let took = began.elapsed();
        assert!(took >= Duration::from_secs(181) && took <= Duration::from_secs(364), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_claim_that_panics_is_tried_again_after_a_pause_like_a_store_that_fails() {
        let work = Jobs::new([Job::Takes(Duration::ZERO)]);
        work.panics.store(4, SeqCst);
        let began = Instant::now();
        work.until_done(1).await;
        // 1, 2, 4 and 8 seconds at least.
        assert!(began.elapsed() >= Duration::from_secs(15), "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_poll_that_never_comes_is_no_moment_that_overflows() {
        let work = Jobs::new([Job::Takes(Duration::ZERO)]);
        let never = Pace { poll: Duration::MAX, ..PACE };
        run_until(Arc::clone(&work), never, &Notify::new(), sleep(Duration::from_secs(1))).await;
        assert_eq!(work.done.load(SeqCst), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_hint_is_followed_at_once_and_without_one_the_poll_finds_what_is_due() {
        let work = Jobs::new([]);
        let hint = Arc::new(Notify::new());
        let slow = Pace { poll: Duration::from_secs(3_600), ..PACE };
        let running = {
            let (work, hint) = (Arc::clone(&work), Arc::clone(&hint));
            tokio::spawn(async move { run_until(work, slow, &hint, std::future::pending()).await })
        };
        sleep(Duration::from_secs(1)).await;
        work.add(Job::Takes(Duration::ZERO));
        hint.notify_one();
        sleep(Duration::from_secs(1)).await;
        assert_eq!(work.done.load(SeqCst), 1);
        work.add(Job::Takes(Duration::ZERO));
        sleep(Duration::from_secs(2 * 3_600)).await;
        assert_eq!(work.done.load(SeqCst), 2);
        running.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn c076_after_the_stop_nothing_is_claimed_what_ends_in_time_is_done_and_the_rest_is_given_back() {
        let work = Jobs::new([9, 60, 70, 1, 1].map(|seconds| Job::Takes(Duration::from_secs(seconds))));
        let began = Instant::now();
        let stop = sleep(Duration::from_millis(500));
        run_until(Arc::clone(&work), PACE, &Notify::new(), stop).await;
        assert_eq!(work.done.load(SeqCst), 1);
        let mut released = work.released.lock().expect("no panic").clone();
        released.sort_unstable();
        assert_eq!(released, [1, 2]);
        assert_eq!(work.queue.lock().expect("no panic").len(), 2, "these were not claimed");
        assert_eq!(began.elapsed().as_secs(), 10);
        assert_eq!(work.now.load(SeqCst), 2, "those that were given back were dropped before");
    }

    #[derive(Clone, Copy)]
    enum Job {
        Panics,
        Takes(Duration),
    }

    #[derive(Default)]
    struct Jobs {
        queue: Mutex<VecDeque<(usize, Job)>>,
        claimed_for: Mutex<Vec<u32>>,
        released: Mutex<Vec<usize>>,
        faults: AtomicUsize,
        panics: AtomicUsize,
        now: AtomicUsize,
        most_at_once: AtomicUsize,
        done: AtomicUsize,
    }

    impl Jobs {
        fn new(jobs: impl IntoIterator<Item = Job>) -> Arc<Self> {
            let work = Arc::new(Self::default());
            jobs.into_iter().for_each(|job| work.add(job));
            work
        }

        fn add(&self, job: Job) {
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            let number = queue.back().map_or(0, |(number, _)| number + 1);
            queue.push_back((number, job));
        }

        async fn until_done(self: &Arc<Self>, jobs: usize) {
            self.until_done_with(jobs, &Notify::new()).await;
        }

        async fn until_done_with(self: &Arc<Self>, jobs: usize, hint: &Notify) {
            let stop = CancellationToken::new();
            let watch = async {
                while self.done.load(SeqCst) < jobs {
                    sleep(Duration::from_millis(100)).await;
                }
                stop.cancel();
            };
            let done = async { tokio::join!(run_until(Arc::clone(self), PACE, hint, stop.cancelled()), watch) };
            timeout(Duration::from_secs(10_000), done).await.expect("all is done");
        }
    }

    impl Work for Jobs {
        type Item = (usize, Job);
        type Lease = usize;

        async fn claim(&self, free: u32) -> Result<Vec<(usize, Job)>, StoreError> {
            if self.panics.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok() {
                // Like `panic!`, but nothing is printed.
                std::panic::resume_unwind(Box::new("out of luck"));
            }
            if self.faults.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok() {
                return Err(StoreError::Unavailable { reason: "out of order".into(), source: None });
            }
            self.claimed_for.lock().expect("no panic").push(free);
            let mut queue = self.queue.lock().expect("no panic");
            let free = queue.len().min(usize::try_from(free).expect("small"));
            Ok(queue.drain(..free).collect())
        }

        fn lease(&self, item: &(usize, Job)) -> usize {
            item.0
        }

        async fn run(&self, (_, job): (usize, Job)) {
            let now = self.now.fetch_add(1, SeqCst) + 1;
            self.most_at_once.fetch_max(now, SeqCst);
            match job {
                // Like `panic!`, but nothing is printed.
                Job::Panics => {
                    self.now.fetch_sub(1, SeqCst);
                    std::panic::resume_unwind(Box::new("out of luck"));
                }
                Job::Takes(time) => sleep(time).await,
            }
            self.now.fetch_sub(1, SeqCst);
            self.done.fetch_add(1, SeqCst);
        }

        async fn release(&self, number: usize) -> Result<Settled, StoreError> {
            self.released.lock().expect("no panic").push(number);
            Ok(Settled::Done)
        }
    }
}
