//! Who has to know how an attempt ended: the operator, of what was given up and of what was disabled.

use tracing::warn;

use super::attempt::Desk;
use super::measure;
use super::tally::Event;
use crate::Name;
use crate::notice::Notice;
use crate::store::{Buried, Fate, MessageKey, MessageLease, Settlement};
use crate::work::in_time;

impl Desk {
    /// Tells what a claim gave up.
    pub(super) fn tell_buried(&self, buried: &[Buried]) {
        measure::buried(buried);
        for Buried { key, event_type, reason, attempts, replays, .. } in buried {
            self.notices.tell(&dead_letter(key, event_type, reason, *attempts, *replays));
        }
    }

    /// Tells what the settlement did that a person should know.
    pub(super) async fn tell(&self, lease: &MessageLease, event_type: &Name, replays: u32, settlement: &Settlement) {
        if let Fate::Dead(reason) | Fate::Failed(reason) = &settlement.fate {
            self.notices.tell(&dead_letter(&lease.key, event_type, reason, lease.attempt, replays));
        }
        let news = &settlement.endpoint;
        let endpoint = &lease.key.endpoint;
        let may_be_disabled = news.disable.is_some()
            || news.disable_after.is_some_and(|after| self.disabled.should_look(endpoint, after));
        if !may_be_disabled {
            return;
        }
        match in_time(self.store.endpoint(endpoint.clone())).await {
            Ok(Some(found)) => {
                if let Some(notice) = self.disabled.look_at(&found) {
                    self.tally.count(Event::Disabled);
                    measure::disabled(endpoint);
                    self.notices.tell(&notice);
                }
            }
            Ok(None) => {}
            Err(error) => warn!(%error, %endpoint, "whether the endpoint was disabled could not be seen"),
        }
    }
}

/// Of a message that was given up.
fn dead_letter(key: &MessageKey, event_type: &Name, reason: &str, attempts: u32, replays: u32) -> Notice {
    Notice::MessageDead {
        id: key.id.clone(),
        endpoint: key.endpoint.clone(),
        event_type: event_type.clone(),
        reason: reason.to_owned(),
        attempts,
        replays,
    }
}
