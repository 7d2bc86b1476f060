//! Has the processes record how long their requests take, as long as this command tells of it.

use crate::devices;
use transom_system::Watched;
use transom_system::registry::Registry;
use transom_system::tools::Tool;

/// Those that do.
#[derive(Default)]
pub(super) struct Processes(Vec<Watched>);

impl Processes {
    /// Takes in new ones, and asks all again. Call it once a second.
    pub(super) fn refresh(&mut self, registry: &'static Registry) {
        self.0.retain(Watched::is_alive);
        for process in devices::running(registry) {
            if self.0.iter().all(|it| it.announcer() != process.announcer) {
                self.0.extend(Watched::new(registry, &process, &[Tool::Latencies]));
            }
        }
        self.0.iter_mut().for_each(Watched::refresh);
    }
}
