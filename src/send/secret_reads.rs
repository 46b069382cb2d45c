//! Files with secrets, read while messages wait: few at a time, each once at a time, and none waited for twice in vain.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout_at};
use zeroize::Zeroizing;

use super::PlaceError;
use super::secret_place::file_text;

/// Those of this process, whose threads they use.
pub(super) static SECRET_READS: LazyLock<SecretReads> = LazyLock::new(|| SecretReads::new(file_text));

/// A read blocks a thread, and a file on a network that went away may keep it for ever. Such files must not use up the
/// threads that the rest of the application shares: not by their number, nor by the number of those who ask.
pub(super) struct SecretReads {
    read: Read,
    permits: Arc<Semaphore>,
    files: Files,
}

type Read = fn(&Path) -> Result<Zeroizing<String>, PlaceError>;
type Files = Arc<Mutex<HashMap<PathBuf, State>>>;
/// Shared by all who wait for it, and gone with the last of them.
type Answer = Result<Arc<Zeroizing<String>>, Arc<PlaceError>>;
type Answers = watch::Receiver<Option<Answer>>;

/// What is known of a file. One that was read well is read again by the next who asks: it may have changed.
enum State {
    Reading { since: Instant, answers: Answers },
    Failed { error: Arc<PlaceError>, until: Instant },
}

/// How many files are read at one time.
const READS_AT_ONCE: usize = 8;
/// How long a read may take for those who wait for it. It is less than a source of keys may take, so that its failure
/// names the file.
const PATIENCE: Duration = Duration::from_secs(2);
/// For how long a failure is the answer to whoever asks.
const FAILURE_KEPT_FOR: Duration = Duration::from_secs(3);
/// How many files are known before the failures that are over are forgotten.
const MANY: usize = 1_024;

impl SecretReads {
    fn new(read: Read) -> Self {
        Self { read, permits: Arc::new(Semaphore::new(READS_AT_ONCE)), files: Files::default() }
    }

    /// The secret's text in this file. Waits no longer than 2 seconds from the moment at which the read was asked for
    /// first: where it hangs, whoever asks later hears so at once.
    pub(super) async fn text(&self, path: &Path) -> Result<Arc<Zeroizing<String>>, PlaceError> {
        let (since, mut answers) = self.begin(path)?;
        let answered = timeout_at(since + PATIENCE, answers.wait_for(Option::is_some)).await;
        match answered.map_err(|_elapsed| PlaceError::TooSlow(PATIENCE))?.as_deref() {
            Ok(Some(Ok(text))) => Ok(Arc::clone(text)),
            Ok(Some(Err(error))) => Err(error.again()),
            // The runtime ends.
            Ok(None) | Err(_) => Err(PlaceError::Unreadable(io::Error::other("the read was given up"))),
        }
    }

    /// Joins the read that goes on, or starts one.
    fn begin(&self, path: &Path) -> Result<(Instant, Answers), PlaceError> {
        let since = Instant::now();
        let mut files = lock(&self.files);
        match files.get(path) {
            Some(State::Reading { since, answers }) => return Ok((*since, answers.clone())),
            Some(State::Failed { error, until }) if since < *until => return Err(error.again()),
            Some(State::Failed { .. }) | None => {}
        }
        if files.len() >= MANY {
            files.retain(|_, state| !matches!(state, State::Failed { until, .. } if *until <= since));
        }
        let (answer, answers) = watch::channel(None);
        files.insert(path.to_owned(), State::Reading { since, answers: answers.clone() });
        drop(files);
        let running = Running { files: Arc::clone(&self.files), path: path.to_owned(), answer };
        tokio::spawn(running.run(self.read, Arc::clone(&self.permits)));
        Ok((since, answers))
    }
}

impl fmt::Debug for SecretReads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretReads").field("permits", &self.permits.available_permits()).finish_non_exhaustive()
    }
}

/// A read that was asked for. It is nobody's own: whoever asked may stop waiting.
struct Running {
    files: Files,
    path: PathBuf,
    answer: watch::Sender<Option<Answer>>,
}

impl Running {
    async fn run(self, read: Read, permits: Arc<Semaphore>) {
        let Ok(permit) = permits.acquire_owned().await else { return };
        tokio::task::spawn_blocking(move || {
            let read = read(&self.path);
            // Both are given back when the read has ended, not when nobody waits for it any more.
            self.end(read.map(Arc::new).map_err(Arc::new));
            drop(permit);
        });
    }

    fn end(self, answer: Answer) {
        if let Err(error) = &answer {
            let failed = State::Failed { error: Arc::clone(error), until: Instant::now() + FAILURE_KEPT_FOR };
            lock(&self.files).insert(self.path.clone(), failed);
        } else {
            lock(&self.files).remove(&self.path);
        }
        self.answer.send_replace(Some(answer));
    }
}

/// Also where it never came to reading: the next who asks starts anew.
impl Drop for Running {
    fn drop(&mut self) {
        let is_over = self.answer.borrow().is_some();
        if !is_over {
            lock(&self.files).remove(&self.path);
        }
    }
}

fn lock(files: &Mutex<HashMap<PathBuf, State>>) -> MutexGuard<'_, HashMap<PathBuf, State>> {
    files.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::Condvar;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use futures_util::future::join_all;

    use super::*;

    /// Files whose names begin with `stuck` hang until they are let go.
    static LET_GO: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());
    static STUCK: AtomicUsize = AtomicUsize::new(0);

    fn stuck_or_well(path: &Path) -> Result<Zeroizing<String>, PlaceError> {
        if path.to_string_lossy().starts_with("stuck") {
            STUCK.fetch_add(1, SeqCst);
            let (is_over, told) = &LET_GO;
            let over = told.wait_while(is_over.lock().expect("a lock"), |over| !*over).expect("a lock");
            drop(over);
        }
        Ok(Zeroizing::new(path.to_string_lossy().into_owned()))
    }

    #[tokio::test]
    async fn a_file_that_hangs_costs_one_thread_however_often_it_is_asked_for_and_is_read_again_when_it_ends() {
        let reads = SecretReads::new(stuck_or_well);
        let path = Path::new("stuck");
        let first = join_all((0..100).map(|_| reads.text(path))).await;
        assert!(first.iter().all(|read| matches!(read, Err(PlaceError::TooSlow(_)))), "{first:?}");
        // Later ones do not wait.
        let asked = std::time::Instant::now();
        for _ in 0..100 {
            assert!(matches!(reads.text(path).await, Err(PlaceError::TooSlow(_))));
        }
        assert!(asked.elapsed() < PATIENCE, "{:?}", asked.elapsed());
        assert_eq!((STUCK.load(SeqCst), reads.permits.available_permits()), (1, READS_AT_ONCE - 1));
        assert_eq!(reads.text(Path::new("well")).await.expect("a text").as_str(), "well");

        // As many as may hang at one time, and more: no more threads than that.
        let many: Vec<PathBuf> = (0..3 * READS_AT_ONCE).map(|number| format!("stuck {number}").into()).collect();
        let all = join_all(many.iter().map(|path| reads.text(path))).await;
        assert!(all.iter().all(Result::is_err));
        assert_eq!((STUCK.load(SeqCst), reads.permits.available_permits()), (READS_AT_ONCE, 0));

        *LET_GO.0.lock().expect("a lock") = true;
        LET_GO.1.notify_all();
        let all_permits = u32::try_from(READS_AT_ONCE).expect("few");
        drop(reads.permits.acquire_many(all_permits).await.expect("they come back"));
        assert_eq!(reads.text(path).await.expect("a text").as_str(), "stuck");
    }

    static FAILED: AtomicUsize = AtomicUsize::new(0);

    fn failing(_: &Path) -> Result<Zeroizing<String>, PlaceError> {
        FAILED.fetch_add(1, SeqCst);
        Err(PlaceError::Unreadable(io::Error::from_raw_os_error(5)))
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_the_answer_for_a_few_seconds() {
        let reads = SecretReads::new(failing);
        let path = Path::new("a");
        let first = reads.text(path).await.expect_err("a failure").to_string();
        assert_eq!(reads.text(path).await.expect_err("a failure").to_string(), first);
        assert_eq!(FAILED.load(SeqCst), 1);
        tokio::time::advance(FAILURE_KEPT_FOR).await;
        reads.text(path).await.expect_err("a failure");
        assert_eq!(FAILED.load(SeqCst), 2);
    }
}
