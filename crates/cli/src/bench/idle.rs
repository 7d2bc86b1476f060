//! The costs of processes that do nothing.

use std::time::Duration;

use super::extent::Extent;
use super::load::Load;
use super::report::Outcome;
use super::tasks::Task;
use super::teams::{Pair, Teams};
use crate::failure::{Failure, Result};

/// Measures the memory of windows, making and connecting queue pairs, and wake-ups.
pub(super) fn measure(teams: &mut Teams, extent: Extent) -> Result<Vec<Outcome>> {
    let load = Load::now();
    let mut singles = Vec::new();
    teams.dismiss(Pair::Windows(extent.windows));
    let live = extent.windows;
    let bytes = teams.measure(Pair::Private, Task::Windows { live }, 1)?;
    let name = format!("memory of an idle window in the table, {live} live");
    // The table itself takes 256 KiB in any case.
    let most = 64.0 + 262_144.0 / live as f64;
    singles.push((name, "bytes", bytes, most.ceil()));
    teams.dismiss(Pair::Private);
    let count = extent.queue_pairs;
    let team = teams.team(Pair::QueuePairs(count)).as_ref();
    let connected = team.map(|team| team.connected).map_err(Clone::clone);
    let name = format!("ibv_create_qp and connecting, {count} queue pairs");
    let times = connected.clone().map(|connected| [connected.connecting, connected.memory]);
    let others = load.others_since();
    let connecting = Outcome::beside(name, times, ("5 faults and malloc", 2.0), others);
    let switched = match connected {
        Ok(connected) => Ok(idle(connected.pids, extent.idle)? as f64),
        Err(why) => Err(why),
    };
    let name = format!(
        "context switches of two idle processes in {} s, {count} queue pairs connected",
        extent.idle.as_secs()
    );
    singles.push((name, "", switched, 0.0));
    let others = load.others_since();
    let singles = singles
        .into_iter()
        .map(|(name, unit, value, most)| Outcome::single(name, unit, value, most, others));
    Ok(singles.chain([connecting]).collect())
}

/// The context switches of both processes while they have nothing to do.
fn idle(pids: [u32; 2], time: Duration) -> Result<u64> {
    let count = || -> Result<u64> { Ok(switches(pids[0])? + switches(pids[1])?) };
    // The rest of the last measurement is done when the counts stand still for a moment.
    let mut before = count()?;
    loop {
        std::thread::sleep(Duration::from_millis(50));
        let now = count()?;
        if now == before {
            break;
        }
        before = now;
    }
    std::thread::sleep(time);
    Ok(count()? - before)
}

/// The voluntary and other context switches of all threads of a process.
fn switches(pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/task");
    let tasks = std::fs::read_dir(&path).map_err(|e| Failure::new(format!("{path}: {e}")))?;
    let mut total = 0;
    for task in tasks.flatten() {
        let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let counts = status.lines().filter_map(|line| line.split_once("_ctxt_switches:"));
        total += counts.filter_map(|(_, count)| count.trim().parse::<u64>().ok()).sum::<u64>();
    }
    Ok(total)
}
