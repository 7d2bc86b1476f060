//! A plan carried out to its end.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::model::{At, Counts};
use crate::plan::Plan;
use crate::program::Programs;
use crate::random::Random;
use crate::world::{Event, Shared};

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What was wrong first.
    pub wrong: Option<String>,
    /// What happened how often.
    pub counts: Counts,
}

/// How long the programs wait between looks at whether all is done.
const LOOK: u64 = 20_000_000;
/// More events than any run has that ends.
const MOST_EVENTS: u64 = 3_000_000;

/// Carries out a plan; with `trace`, prints what happens.
pub fn run(plan: &Plan, trace: bool) -> Outcome {
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let shared = Shared::new(plan, trace);
        let wrong = carry_out(plan, &shared);
        let counts = shared.model().counts;
        Outcome { wrong, counts }
    }));
    caught.unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().cloned();
        let said = said.or_else(|| panic.downcast_ref::<&str>().map(|said| (*said).into()));
        let wrong = Some(format!("panic: {}", said.unwrap_or_default()));
        Outcome { wrong, counts: Counts::default() }
    })
}

fn carry_out(plan: &Plan, shared: &Shared) -> Option<String> {
    let programs = Programs::new(shared, plan);
    let mut random = Random::new(plan.seed ^ 0x5e771e);
    for (number, step) in plan.steps.iter().enumerate() {
        shared.schedule(step.at, Event::Step(number));
    }
    shared.schedule(plan.duration, Event::Settle);
    let (mut events, mut settling) = (0_u64, Settling::default());
    while let Some(event) = shared.next() {
        events += 1;
        if events > MOST_EVENTS {
            return Some("the devices go on for ever".into());
        }
        match event {
            Event::Arrive(device) => {
                for at in shared.arrive(device) {
                    shared.advance(at);
                }
            }
            Event::Leave(device) => shared.leave(device),
            Event::Alarm(at) => shared.alarm(at),
            Event::Step(number) => programs.step(&plan.steps[number]),
            Event::Settle if programs.settle(&mut random) => break,
            Event::Settle => {
                if let Some(at) = settling.stalled(shared) {
                    let silent = waits_for_ever(shared, at);
                    if !silent {
                        return Some(format!("{at} stalls: nothing ends any more"));
                    }
                    programs.fail(at);
                }
                shared.schedule(shared.now() + LOOK, Event::Settle);
            }
        }
        if let Some(wrong) = shared.model().wrong.take() {
            return Some(wrong);
        }
    }
    finish(shared, &programs)
}

/// Whether a queue pair waits for ever for answers, as its program has asked (rule RN-06).
fn waits_for_ever(shared: &Shared, at: At) -> bool {
    shared.nodes[at.device].qp(at.qp).endpoint.borrow().requester.retry.timeout == 0
}

/// Ends everything: what is left must flush, and nothing may hold anything.
fn finish(shared: &Shared, programs: &Programs<'_>) -> Option<String> {
    for device in 0..2 {
        let count = shared.nodes[device].qps.borrow().len();
        for qp in 0..count {
            programs.fail(At { device, qp });
        }
    }
    programs.clear();
    // What is still on its way finds nobody.
    while let Some(event) = shared.next() {
        match event {
            Event::Arrive(device) => drop(shared.arrive(device)),
            Event::Alarm(at) => shared.alarm(at),
            _ => {}
        }
    }
    let model = shared.model();
    if model.wrong.is_some() {
        return model.wrong.clone();
    }
    for (device, ends) in model.ends.iter().enumerate() {
        for (qp, end) in ends.iter().enumerate() {
            let at = At { device, qp };
            let (sends, receives) = (end.sends.waiting().len(), end.receives.waiting().len());
            if sends + receives > 0 {
                return Some(format!("{at}: {sends} sends and {receives} receives never end"));
            }
        }
    }
    None
}

/// Looks at whether queue pairs get on.
#[derive(Default)]
struct Settling {
    /// For each queue pair: what had ended at the last look that saw a difference, and when.
    seen: Vec<(At, usize, u64)>,
}

impl Settling {
    /// A queue pair on which nothing has ended for longer than all its retries take.
    fn stalled(&mut self, shared: &Shared) -> Option<At> {
        let model = shared.model();
        let now = shared.now();
        for (device, ends) in model.ends.iter().enumerate() {
            for (qp, end) in ends.iter().enumerate() {
                let at = At { device, qp };
                if end.sends.waiting().is_empty() {
                    continue;
                }
                let known = self.seen.iter_mut().find(|(seen, ..)| *seen == at);
                let Some((_, ended, since)) = known else {
                    self.seen.push((at, end.sends.ended(), now));
                    continue;
                };
                if *ended != end.sends.ended() {
                    (*ended, *since) = (end.sends.ended(), now);
                } else if now - *since > timeout(shared, at) {
                    return Some(at);
                }
            }
        }
        None
    }
}

/// Longer than one work request may take: all retries of each of its packets, in the slowest clock.
fn timeout(shared: &Shared, at: At) -> u64 {
    let qp = shared.nodes[at.device].qp(at.qp);
    let retry = qp.endpoint.borrow().requester.retry;
    // Each wait may be four timeouts long.
    let timeouts = 4 * retry.wait().unwrap_or(0) * (u64::from(retry.count) + 2);
    2_000_000_000 + timeouts * 32
}

/// The fewest steps of a plan that still go wrong, as far as leaving them out one by one finds them.
pub fn shrink(plan: &Plan) -> Plan {
    let mut best = plan.clone();
    let mut part = best.steps.len() / 2;
    while part > 0 {
        let mut start = 0;
        while start < best.steps.len() {
            let mut fewer = best.clone();
            let end = (start + part).min(fewer.steps.len());
            fewer.steps.drain(start..end);
            if run(&fewer, false).wrong.is_some() {
                best = fewer;
            } else {
                start += part;
            }
        }
        part /= 2;
    }
    best
}
