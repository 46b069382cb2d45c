//! Who has to know how an attempt ended: the operator, of what was given up and of what was disabled.

use futures_util::future::join_all;
use tracing::warn;

use super::attempt::Desk;
use super::measure;
use super::notice::dead_letter;
use super::tally::Event;
use crate::Name;
use crate::store::{Buried, Fate, MessageLease, Settlement};
use crate::work::in_time;

impl Desk {
    /// Tells what a claim gave up.
    pub(super) async fn tell_buried(&self, buried: &[Buried]) {
        measure::buried(buried);
        let tell = async |buried: &Buried| {
            let Buried { key, event_type, reason, attempts, replays, .. } = buried;
            let notice = dead_letter(key, event_type, reason, *attempts, *replays);
            self.notices.tell(&self.store, &notice).await;
        };
        join_all(buried.iter().map(tell)).await;
    }

    /// Tells what the settlement did that a person should know.
    pub(super) async fn tell(&self, lease: &MessageLease, event_type: &Name, replays: u32, settlement: &Settlement) {
        if let Fate::Dead(reason) | Fate::Failed(reason) = &settlement.fate {
            let notice = dead_letter(&lease.key, event_type, reason, lease.attempt, replays);
            self.notices.tell(&self.store, &notice).await;
        }
        let news = &settlement.endpoint;
        let endpoint = &lease.key.endpoint;
        let may_be_disabled =
            news.disable.is_some() || news.disable_after.is_some_and(|after| self.notices.should_look(endpoint, after));
        if !may_be_disabled {
            return;
        }
        match in_time(self.store.endpoint(endpoint.clone())).await {
            Ok(Some(found)) => {
                if let Some(notice) = self.notices.look_at(&found) {
                    self.tally.count(Event::Disabled);
                    measure::disabled(endpoint);
                    self.notices.tell(&self.store, &notice).await;
                }
            }
            Ok(None) => {}
            Err(error) => warn!(%error, %endpoint, "whether the endpoint was disabled could not be seen"),
        }
    }
}
