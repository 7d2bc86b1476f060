//! The steps of processors.

use crate::litmus::program::Statement;

use super::{Buffered, Machine, Open, State};

impl Machine<'_> {
    /// All steps that processors may take and others may notice.
    pub(super) fn processors(&self, state: &State, next: &mut Vec<State>) {
        for thread in 0..state.threads.len() {
            if let Some(Buffered::Store(to, value)) = state.threads[thread].buffer.front() {
                let mut after = state.clone();
                after.threads[thread].buffer.pop_front();
                after.memory[*to] = *value;
                next.push(after);
            }
            let Some(statement) = self.program.threads[thread].get(state.threads[thread].next)
            else {
                continue;
            };
            let is_drained = state.threads[thread].buffer.is_empty();
            let mut after = state.clone();
            match *statement {
                Statement::Load(register, from) => {
                    after.registers[register] = load(state, thread, from);
                }
                Statement::Add(to, value) if is_drained => after.memory[to] += value,
                Statement::Revoke(window) if !self.is_under_way(state, window) => {
                    after.bound[window] = false;
                }
                _ => continue,
            }
            after.threads[thread].next += 1;
            next.push(after);
        }
    }

    /// Takes one step that makes no difference to others, or only lets them do more.
    pub(super) fn settle_processor(&self, state: &mut State) -> bool {
        (0..state.threads.len()).any(|thread| self.settle_thread(state, thread))
    }

    fn settle_thread(&self, state: &mut State, thread: usize) -> bool {
        let statements = &self.program.threads[thread];
        if let Some(&Buffered::Post(at)) = state.threads[thread].buffer.front() {
            state.threads[thread].buffer.pop_front();
            if let Statement::Post(end, _) = statements[at] {
                post(state, end, (thread, at));
            }
            return true;
        }
        let at = state.threads[thread].next;
        let is_drained = state.threads[thread].buffer.is_empty();
        match statements.get(at) {
            Some(&Statement::Store(to, value)) => {
                state.threads[thread].buffer.push_back(Buffered::Store(to, value));
            }
            Some(Statement::Post(..)) => state.threads[thread].buffer.push_back(Buffered::Post(at)),
            Some(&Statement::Await(from, value)) if load(state, thread, from) == value => {}
            Some(Statement::Fence) if is_drained => {}
            Some(&Statement::Tell(channel)) if is_drained => state.told[channel] += 1,
            Some(&Statement::Hear(channel)) if state.told[channel] > 0 => state.told[channel] -= 1,
            Some(&Statement::Receive(end)) if state.queues[end].received > 0 => {
                state.queues[end].received -= 1;
            }
            Some(&Statement::Poll(end, register)) => {
                match state.queues[end].completions.pop_front() {
                    Some(failed) => {
                        if let Some(register) = register {
                            state.registers[register] = u64::from(failed);
                        }
                    }
                    None => return false,
                }
            }
            _ => return false,
        }
        state.threads[thread].next += 1;
        true
    }
}

/// What a processor sees: its own last store, else memory.
fn load(state: &State, thread: usize, from: usize) -> u64 {
    let own = state.threads[thread].buffer.iter().rev().find_map(|buffered| match *buffered {
        Buffered::Store(to, value) if to == from => Some(value),
        _ => None,
    });
    own.unwrap_or(state.memory[from])
}

fn post(state: &mut State, end: usize, by: (usize, usize)) {
    let queue = &mut state.queues[end];
    queue.posted += 1;
    let (message, failed) = (queue.posted, queue.broken);
    queue.open.push(Open { by, message, values: Vec::new(), done: failed, landed: false, failed });
}
