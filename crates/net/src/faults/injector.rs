//! Counts the requests that rules match, and decides which are answered without being carried out.

use std::sync::atomic::{AtomicU64, Ordering::*};

use transom_device::execution::{Injection, Request};

use super::InjectionRule;

/// The rules of a process, each with the number of requests it has met.
#[derive(Debug, Default)]
pub struct Injector(Vec<(InjectionRule, AtomicU64)>);

impl Injector {
    /// Makes one with these rules. The first rule that matches decides.
    pub fn new(rules: &[InjectionRule]) -> Self {
        Self(rules.iter().map(|rule| (*rule, AtomicU64::new(0))).collect())
    }

    /// Whether it has no rules.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The injected answer to a request that has just arrived. `None` if the request has to be carried out. Every rule
    /// counts it; the first that applies decides.
    #[inline]
    pub fn answer(&self, request: &Request) -> Option<Injection> {
        let about = self.0.iter().filter(|(rule, _)| rule.concerns(&request.body));
        about.fold(None, |decided, (rule, met)| {
            let meant = rule.nth.includes(met.fetch_add(1, Relaxed) + 1);
            decided.or(meant.then_some(rule.answer))
        })
    }
}
