//! Breadth-first search over everything that can happen, one state per fingerprint; the shortest way to a violation in words.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};
use std::time::{Duration, Instant};

use super::encode::{Encoder, fingerprint};
use super::world::{Action, Scenario, TICK, Violation, World};
use crate::time::Time;

/// Fingerprints are hashes already.
#[derive(Default)]
pub struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("only for u128")
    }
    fn write_u128(&mut self, n: u128) {
        self.0 = n as u64;
    }
}

type Visited = HashSet<u128, BuildHasherDefault<Identity>>;

/// What a search found.
pub struct Report {
    pub states: usize,
    pub steps: u64,
    pub depth: usize,
    pub took: Duration,
    pub violation: Option<Trace>,
}

/// The shortest way to a violation.
pub struct Trace {
    pub violation: Violation,
    pub actions: Vec<Action>,
    pub words: Vec<String>,
}

impl std::fmt::Display for Trace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{}: {}, after {} steps:", self.violation.property, self.violation.what, self.words.len())?;
        for (i, step) in self.words.iter().enumerate() {
            writeln!(f, "{:>4}. {step}", i + 1)?;
        }
        Ok(())
    }
}

/// Where each state was first come from.
struct Origins(Vec<(u32, Action)>);

impl Origins {
    fn way_to(&self, mut state: u32) -> Vec<Action> {
        let mut actions = Vec::new();
        while state != 0 {
            let (from, action) = self.0[state as usize];
            actions.push(action);
            state = from;
        }
        actions.reverse();
        actions
    }
}

pub fn search(scenario: &Scenario) -> Report {
    let began = Instant::now();
    let start = World::new(scenario);
    let mut encoder = Encoder::default();
    let mut visited = Visited::default();
    let mut origins = Origins(vec![(0, Action::Tick)]);
    visited.insert(fingerprint(encoder.encode(&start)));
    let mut frontier = vec![(start, 0_u32)];
    let (mut depth, mut steps) = (0, 0);
    let mut actions = Vec::new();
    let mut found = None;
    'search: while !frontier.is_empty() {
        let mut next = Vec::new();
        for (world, id) in frontier.drain(..) {
            world.actions(&mut actions);
            for action in &actions {
                let mut after = world.clone();
                steps += 1;
                let result = after.apply(*action);
                let is_new = result.is_err() || visited.insert(fingerprint(encoder.encode(&after)));
                if !is_new {
                    continue;
                }
                origins.0.push((id, *action));
                let result = result.and_then(|()| after.check_state()).and_then(|()| finishes(&after));
                let number = origins.0.len() as u32 - 1;
                if let Err(violation) = result {
                    let actions = origins.way_to(number);
                    found = Some(Trace { violation, words: in_words(scenario, &actions), actions });
                    break 'search;
                }
                next.push((after, number));
            }
        }
        frontier = next;
        depth += 1;
    }
    Report { states: visited.len(), steps, depth, took: began.elapsed(), violation: found }
}

pub fn in_words(scenario: &Scenario, actions: &[Action]) -> Vec<String> {
    let mut world = World::new(scenario);
    let mut words = Vec::new();
    for action in actions {
        world.words = Some(format!("{action:?}"));
        let result = world.apply(*action);
        words.push(world.words.take().unwrap_or_default());
        if let Err(violation) = result {
            words.push(format!("   {violation:?}"));
        }
    }
    words
}

/// Where everybody sleeps or has stopped: from here on the timers alone, and the safety tick where somebody has stopped,
/// let everybody else finish (P4, P7). Sleeping behind a process that stopped between its seal and its commit is allowed.
fn finishes(world: &World<'_>) -> Result<(), Violation> {
    let all = || 0..world.processes.len() as u8;
    if all().any(|p| world.can_step(p)) || all().all(|p| world.processes[p as usize].frozen || world.is_done(p)) {
        return Ok(());
    }
    let somebody_stopped = all().any(|p| world.processes[p as usize].frozen);
    let mut world = world.clone();
    world.words = None;
    let mut ticked = false;
    for _ in 0..64 {
        let mut steps = 0;
        while let Some(p) = all().find(|p| world.can_step(*p)) {
            world.apply(Action::Step(p))?;
            steps += 1;
            if steps > 1000 {
                return Err(Violation { property: "P7", what: "everybody runs and nobody gets anywhere".into() });
            }
        }
        let left: Vec<u8> = all().filter(|p| !world.processes[*p as usize].frozen && !world.is_done(*p)).collect();
        if left.is_empty() {
            return Ok(());
        }
        let timer = left.iter().filter_map(|p| world.sleeps(*p)).min().unwrap_or(Time::NEVER);
        if timer != Time::NEVER {
            world.now = world.now.max(timer.0.div_euclid(TICK));
            ticked = false;
        } else if somebody_stopped && !ticked {
            left.iter().for_each(|p| world.processes[*p as usize].woken = true);
            ticked = true;
        } else {
            break;
        }
    }
    if all().any(|p| world.processes[p as usize].frozen && (world.is_sealed(p) || world.table_lock == Some(p))) {
        return Ok(());
    }
    let property = if somebody_stopped { "P4" } else { "P7" };
    Err(Violation { property, what: "everybody sleeps, and no timer lets anybody finish".into() })
}
