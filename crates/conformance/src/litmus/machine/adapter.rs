//! The steps of adapters.

use crate::litmus::program::{Request, Statement, Verb};
use crate::litmus::rules::{Kind, Placement};

use super::{Machine, Open, Queue, State, What, Written};

impl Machine<'_> {
    /// All steps that adapters may take and others may notice.
    pub(super) fn adapters(&self, state: &State, next: &mut Vec<State>) {
        for end in 0..state.queues.len() {
            let queue = &state.queues[end];
            for at in 0..queue.open.len() {
                if !queue.open[at].failed && !self.waits(queue, at) {
                    self.gather(state, end, at, next);
                    self.carry_out(state, end, at, next);
                    self.land(state, end, at, next);
                }
            }
            for at in 0..queue.far.len() {
                if self.may_reach_memory(state, &queue.far, at, true) {
                    let mut after = state.clone();
                    let written = after.queues[end].far.remove(at);
                    written.reach_memory(&mut after);
                    next.push(after);
                }
            }
            for at in 0..queue.near.len() {
                if self.may_reach_memory(state, &queue.near, at, false) {
                    let mut after = state.clone();
                    let written = after.queues[end].near.remove(at);
                    written.reach_memory(&mut after);
                    next.push(after);
                }
            }
        }
    }

    /// Takes one step that only lets others do more: a completion.
    pub(super) fn settle_adapter(&self, state: &mut State) -> bool {
        for end in 0..state.queues.len() {
            let queue = &mut state.queues[end];
            if let Some(first) = queue.open.first()
                && self.is_complete(queue, first)
            {
                let first = queue.open.remove(0);
                queue.completions.push_back(first.failed);
                return true;
            }
            if let Some(Written { what: What::Receive, .. }) = queue.far.first() {
                queue.far.remove(0);
                state.queues[self.program.ends[end].peer].received += 1;
                return true;
            }
        }
        false
    }

    fn request(&self, open: &Open) -> &Request {
        match &self.program.threads[open.by.0][open.by.1] {
            Statement::Post(_, request) => request,
            other => unreachable!("{other:?} is not posted"),
        }
    }

    /// Whether a fence of its own, or a bind or invalidation before it, holds a request back.
    fn waits(&self, queue: &Queue, at: usize) -> bool {
        let fence = self.request(&queue.open[at]).fence;
        queue.open[..at].iter().any(|before| match self.request(before).kind() {
            Kind::Local => !before.done,
            Kind::Read | Kind::Atomic => fence && !self.is_complete(queue, before),
            Kind::Write => false,
        })
    }

    fn is_complete(&self, queue: &Queue, open: &Open) -> bool {
        let is_of_it = |written: &Written| written.message == open.message;
        open.failed
            || match self.request(open).verb {
                Verb::Get(..) => open.landed && !queue.near.iter().any(is_of_it),
                Verb::FetchAdd(..) | Verb::CompareSwap(..) => {
                    open.landed
                        && !queue.near.iter().any(is_of_it)
                        && (!self.authority.atomic_completes_when_seen()
                            || !queue.far.iter().any(is_of_it))
                }
                Verb::Put(_) | Verb::PutImmediate(..)
                    if self.authority.write_completes_when_seen() =>
                {
                    open.done && !queue.far.iter().any(is_of_it)
                }
                _ => open.done,
            }
    }

    /// A WRITE reads its source.
    fn gather(&self, state: &State, end: usize, at: usize, next: &mut Vec<State>) {
        let queue = &state.queues[end];
        let open = &queue.open[at];
        let sources: Vec<_> = match &self.request(open).verb {
            Verb::Put(words) => words.iter().map(|word| word.1).collect(),
            Verb::PutImmediate(_, from) => vec![*from],
            _ => return,
        };
        let is_gathered = |open: &Open| match &self.request(open).verb {
            Verb::Put(words) => open.failed || open.values.len() == words.len(),
            Verb::PutImmediate(..) => open.failed || !open.values.is_empty(),
            _ => true,
        };
        let in_order = self.authority.local_side_in_order();
        if is_gathered(open) || in_order && !queue.open[..at].iter().all(is_gathered) {
            return;
        }
        let mut after = state.clone();
        let value = state.memory[sources[open.values.len()]];
        after.queues[end].open[at].values.push(value);
        next.push(after);
    }

    /// A request is carried out at its target, or here if it has none.
    fn carry_out(&self, state: &State, end: usize, at: usize, next: &mut Vec<State>) {
        let queue = &state.queues[end];
        let open = &queue.open[at];
        let request = self.request(open);
        let held_up = |before: &Open| {
            !before.done && self.authority.keeps(self.request(before).kind(), request.kind())
        };
        if open.done || queue.open[..at].iter().any(held_up) {
            return;
        }
        let is_locked = |to: usize| state.locked[to] && self.authority.atomic_excludes_writes();
        let reaches_memory = !matches!(request.kind(), Kind::Local);
        let mut after = state.clone();
        let of_it = &mut after.queues[end];
        match request.verb {
            _ if reaches_memory && request.window.is_some_and(|window| !state.bound[window]) => {
                fail(of_it, at);
            }
            Verb::Put(ref words)
                if open.values.len() == words.len()
                    && !words.iter().any(|word| is_locked(word.0)) =>
            {
                for (word, value) in words.iter().zip(open.values.clone()) {
                    write(of_it, at, word.0, value, request.window);
                }
            }
            Verb::PutImmediate(to, _) if !open.values.is_empty() && !is_locked(to) => {
                write(of_it, at, to, open.values[0], request.window);
                of_it.far.push(Written { message: open.message, what: What::Receive });
            }
            Verb::Get(_, from) if !self.authority.read_pushes_writes() || queue.far.is_empty() => {
                let value = arriving(queue, from).unwrap_or(state.memory[from]);
                of_it.open[at].values.push(value);
            }
            Verb::FetchAdd(_, there, _) | Verb::CompareSwap(_, there, ..) => {
                return self.atomic_step(after, end, at, there, next);
            }
            Verb::Flush if queue.far.is_empty() => {}
            Verb::Send(window) if window.is_none_or(|it| !self.is_under_way(state, it)) => {
                of_it.far.push(Written { message: open.message, what: What::Receive });
                window.into_iter().for_each(|window| after.bound[window] = false);
            }
            Verb::Bind(window) => after.bound[window] = true,
            Verb::Invalidate(window) if !self.is_under_way(state, window) => {
                after.bound[window] = false;
            }
            _ => return,
        }
        after.queues[end].open[at].done = true;
        next.push(after);
    }

    /// Whether something that a window let through is not in memory yet.
    pub(super) fn is_under_way(&self, state: &State, window: usize) -> bool {
        let is_word = |written: &Written| matches!(written.what, What::Word { window: Some(by), .. } if by == window);
        // Between its read and its write, an atomic is in no buffer.
        let is_atomic = |open: &Open| {
            let request = self.request(open);
            let has_begun = !open.values.is_empty() && !open.done;
            request.kind() == Kind::Atomic && request.window == Some(window) && has_begun
        };
        let mut queues = state.queues.iter();
        queues.any(|queue| queue.far.iter().any(is_word) || queue.open.iter().any(is_atomic))
    }

    /// The read of an atomic, or its write. Another adapter's atomic cannot come between, a processor can.
    fn atomic_step(
        &self,
        mut state: State,
        end: usize,
        at: usize,
        there: usize,
        next: &mut Vec<State>,
    ) {
        let request = self.request(&state.queues[end].open[at]);
        let after = |old: u64| match request.verb {
            Verb::FetchAdd(_, _, value) => old + value,
            Verb::CompareSwap(_, _, expected, new) if old == expected => new,
            _ => old,
        };
        let queue = &mut state.queues[end];
        match queue.open[at].values.first().copied() {
            None if queue.far.is_empty() && !state.locked[there] => {
                queue.open[at].values.push(state.memory[there]);
                state.locked[there] = true;
            }
            None => return,
            Some(old) => {
                let (to, value, window) = (there, after(old), request.window);
                let what = What::Word { to, value, window, unlocks: true };
                queue.far.push(Written { message: queue.open[at].message, what });
                queue.open[at].done = true;
            }
        }
        next.push(state);
    }

    /// What a READ or an atomic read there comes home.
    fn land(&self, state: &State, end: usize, at: usize, next: &mut Vec<State>) {
        let queue = &state.queues[end];
        let open = &queue.open[at];
        let to = match self.request(open).verb {
            Verb::Get(to, _) | Verb::FetchAdd(to, ..) | Verb::CompareSwap(to, ..) => to,
            _ => return,
        };
        let is_back = |open: &Open| match self.request(open).verb {
            Verb::Get(..) | Verb::FetchAdd(..) | Verb::CompareSwap(..) => {
                open.landed || open.failed
            }
            _ => open.done,
        };
        let in_order = self.authority.local_side_in_order();
        if let Some(&value) = open.values.first()
            && open.done
            && !open.landed
            && (!in_order || queue.open[..at].iter().all(is_back))
        {
            let mut after = state.clone();
            let what = What::Word { to, value, window: None, unlocks: false };
            after.queues[end].near.push(Written { message: open.message, what });
            after.queues[end].open[at].landed = true;
            next.push(after);
        }
    }

    /// Whether a word may go from a buffer to memory now. Receives complete by themselves.
    fn may_reach_memory(&self, state: &State, buffer: &[Written], at: usize, is_far: bool) -> bool {
        let What::Word { to, unlocks, .. } = buffer[at].what else {
            return false;
        };
        if state.locked[to] && !unlocks && self.authority.atomic_excludes_writes() {
            return false;
        }
        let placement = match self.authority.placement() {
            Placement::ByMessage if !is_far => Placement::InOrder,
            placement => placement,
        };
        let is_passed = |before: &Written| match (placement, &before.what) {
            (Placement::InOrder, _) => false,
            (Placement::ByMessage, _) => before.message == buffer[at].message,
            (Placement::Any, What::Word { to: other, .. }) => {
                *other != to || self.program.locations[to].relaxed
            }
            (Placement::Any, What::Receive) => true,
        };
        buffer[..at].iter().all(is_passed)
    }
}

impl Written {
    fn reach_memory(&self, state: &mut State) {
        if let What::Word { to, value, unlocks, .. } = self.what {
            state.memory[to] = value;
            state.locked[to] &= !unlocks;
        }
    }
}

/// The last value that is on its way to a location.
fn arriving(queue: &Queue, from: usize) -> Option<u64> {
    queue.far.iter().rev().find_map(|written| match written.what {
        What::Word { to, value, .. } if to == from => Some(value),
        _ => None,
    })
}

fn write(queue: &mut Queue, at: usize, to: usize, value: u64, window: Option<usize>) {
    let what = What::Word { to, value, window, unlocks: false };
    queue.far.push(Written { message: queue.open[at].message, what });
}

/// A request is refused: it and all after it fail.
fn fail(queue: &mut Queue, at: usize) {
    queue.broken = true;
    for open in &mut queue.open[at..] {
        (open.failed, open.done) = (true, true);
    }
}
