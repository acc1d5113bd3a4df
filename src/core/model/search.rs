//! Breadth-first search over everything that can happen, one state per fingerprint; the shortest way to a violation in words.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::time::{Duration, Instant};

use super::encode::{Encoder, fingerprint};
use super::world::{Action, Checked, Scenario, TICK, Violation, World, check};
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

/// Which of the states that were met and not yet gone on from is next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// The one met first: finds the shortest way, keeps many states in memory.
    Broad,
    /// The one met last: keeps few.
    Deep,
}

pub fn search(scenario: &Scenario, order: Order) -> Report {
    let began = Instant::now();
    let mut encoder = Encoder::default();
    let mut visited = Visited::default();
    let mut origins = Origins(vec![(0, Action::Tick)]);
    let start = World::new(scenario);
    visited.insert(fingerprint(encoder.encode(&start)));
    let mut met = VecDeque::from([(start, 0_u32, 0)]);
    let (mut depth, mut steps) = (0, 0);
    let mut actions = Vec::new();
    let mut violation = None;
    let next = |met: &mut VecDeque<_>| if order == Order::Broad { met.pop_front() } else { met.pop_back() };
    'search: while let Some((world, id, so_far)) = next(&mut met) {
        depth = depth.max(so_far);
        world.actions(&mut actions);
        for action in &actions {
            let mut after = world.clone();
            steps += 1;
            let result = after.apply(*action);
            if result.is_ok() && !visited.insert(fingerprint(encoder.encode(&after))) {
                continue;
            }
            let number = origins.0.len() as u32;
            origins.0.push((id, *action));
            if let Err(found) = result.and_then(|()| after.check_state()).and_then(|()| finishes(&after)) {
                violation = Some(Trace { violation: found, words: in_words(scenario, &origins.way_to(number)) });
                break 'search;
            }
            met.push_back((after, number, so_far + 1));
        }
    }
    if violation.is_some() && order == Order::Deep {
        return search(scenario, Order::Broad);
    }
    Report { states: visited.len(), steps, depth, took: began.elapsed(), violation }
}

/// How many pairs of states that are encoded alike went on alike: the same can happen, and leads to states alike. Panics at the
/// first pair that does not.
pub fn alike_go_on_alike(scenario: &Scenario) -> usize {
    let mut encoder = Encoder::default();
    let start = World::new(scenario);
    let mut met = VecDeque::from([encoder.encode(&start).to_vec()]);
    let mut visited = HashMap::from([(met[0].clone(), start)]);
    let (mut actions, mut others) = (Vec::new(), Vec::new());
    let mut pairs = 0;
    while let Some(code) = met.pop_front() {
        let world = visited[&code].clone();
        world.actions(&mut actions);
        for action in &actions {
            let mut after = world.clone();
            if after.apply(*action).is_err() {
                continue;
            }
            match visited.get(encoder.encode(&after)) {
                None => {
                    met.push_back(encoder.bytes.clone());
                    visited.insert(encoder.bytes.clone(), after);
                }
                Some(first) => {
                    pairs += 1;
                    let mut possible = Vec::new();
                    first.actions(&mut possible);
                    after.actions(&mut others);
                    assert_eq!(possible, others, "{}: alike, but not the same can happen", scenario.name);
                    for next in &possible {
                        let mut go_on = |world: &World<'_>| {
                            let mut world = world.clone();
                            let result = world.apply(*next);
                            (result, encoder.encode(&world).to_vec())
                        };
                        assert_eq!(go_on(first), go_on(&after), "{}: alike, but not after {next:?}", scenario.name);
                    }
                }
            }
        }
    }
    pairs
}

/// The violation that is met on a given way, if any.
pub fn holds_on_the_way(scenario: &Scenario, actions: &[Action]) -> Option<Trace> {
    let mut world = World::new(scenario);
    let mut possible = Vec::new();
    for (i, action) in actions.iter().enumerate() {
        world.actions(&mut possible);
        let words = || in_words(scenario, &actions[..=i]);
        assert!(possible.contains(action), "{action:?} cannot happen after {:#?}", words());
        if let Err(violation) = world.apply(*action).and_then(|()| world.check_state()).and_then(|()| finishes(&world))
        {
            return Some(Trace { violation, words: words() });
        }
    }
    None
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
fn finishes(world: &World<'_>) -> Checked {
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
                check!(false, "P7", "everybody runs and nobody gets anywhere");
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
            left.iter().for_each(|p| world.process(*p).woken = true);
            ticked = true;
        } else {
            break;
        }
    }
    if all().any(|p| world.processes[p as usize].frozen && (world.is_sealed(p) || world.table_lock == Some(p))) {
        return Ok(());
    }
    check!(somebody_stopped, "P7", "everybody sleeps, and no timer lets anybody finish");
    check!(
        !somebody_stopped,
        "P4",
        "everybody sleeps behind a process that has stopped, and no timer lets anybody finish"
    );
    Ok(())
}
