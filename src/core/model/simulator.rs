//! The same steps at random, for what is too large to exhaust: 8 processes, 5 keys, long runs.
//!
//! A failure prints its seed. `LEASE_SEED=<seed> cargo test -p lease_core simulator -- --nocapture` replays it in words;
//! `LEASE_SEEDS=<number>` runs more than the usual ones.

use std::time::Instant;

use super::world::{Action, Client, KEYS, Scenario, Statement, Violation, World, check, ticks};
use crate::lease::{Lease, State};
use crate::random::Random;
use crate::time::Time;

const PROCESSES: u64 = 8;
const SEEDS: u64 = 10_000;
const LAST_TICK: i64 = 80;
/// A run takes some hundreds.
const MOST_STEPS: u64 = 20_000;

fn statement(random: &mut Random, keys: u64) -> Statement {
    let key = random.below(keys) as u8;
    let ttl = 1 + random.below(6) as i64;
    match random.below(24) {
        0..4 => Statement::Acquire { key, ttl },
        4..9 => Statement::WaitAcquire { key, ttl },
        9..13 => Statement::Renew { key, ttl },
        13..17 => Statement::Release { key },
        17..20 => Statement::Guard { key },
        20 => Statement::ForceRelease { key },
        21 | 22 => Statement::Lapse { key },
        _ => Statement::Purge { key },
    }
}

fn transaction(random: &mut Random, keys: u64) -> Vec<Statement> {
    if random.one_in(60) {
        return vec![Statement::AdvanceEpochs];
    }
    let mut statements = Vec::new();
    let mut level = 1;
    for _ in 0..=random.below(4) {
        match random.below(8) {
            0 => {
                statements.push(Statement::Savepoint);
                level += 1;
            }
            1 if level > 1 => {
                statements.push(random.pick(&[Statement::RollBackTo, Statement::ReleaseSavepoint]));
                level -= 1;
            }
            _ => {}
        }
        statements.push(statement(random, keys));
    }
    statements
}

fn scenario(seed: u64) -> Scenario {
    let mut random = Random(seed);
    // few keys make contention, many make deadlocks
    let keys = 1 + random.below(KEYS as u64);
    let rows = (0..keys).map(|_| {
        let until = random.below(5) as i64;
        let (state, owner) = match random.below(4) {
            0 => return None,
            1 => (State::Free, None),
            2 => (State::Lapsed, Some(random.below(PROCESSES) as u8)),
            _ => (State::Held, Some(random.below(PROCESSES) as u8)),
        };
        let (granted_at, epoch) = (Time(0), 1 + random.below(5) as i64);
        let (ttl, expires_at) = (ticks(until).0, ticks(until));
        Some(Lease { state, epoch, owner, ttl, granted_at, renewed_at: granted_at, expires_at, clock_base: Time(0) })
    });
    let rows = rows.collect();
    let clients = (0..PROCESSES).map(|i| {
        let owner = if random.one_in(4) { random.below(PROCESSES) as u8 } else { i as u8 };
        let repeatable = random.one_in(8);
        Client { owner, repeatable, transactions: (0..6).map(|_| transaction(&mut random, keys)).collect() }
    });
    let clients = clients.collect();
    let crashes = u8::from(random.one_in(4));
    Scenario { name: "simulator", rows, clients, last_tick: LAST_TICK, aborts: 8, freezes: 2, crashes }
}

/// One run, to where all have ended: with what holds at every step, and nothing left behind.
fn run(seed: u64, in_words: bool) -> Result<u64, Violation> {
    let scenario = scenario(seed);
    let mut random = Random(!seed);
    let mut world = World::new(&scenario);
    let mut steps = 0;
    let mut actions = Vec::new();
    let mut act = |world: &mut World<'_>, action| {
        world.words = in_words.then(|| format!("{action:?}"));
        let result = world.apply(action);
        if let Some(words) = &world.words {
            eprintln!("{words}");
        }
        steps += 1;
        result?;
        check!(steps < MOST_STEPS, "P7", "everybody runs and nobody gets anywhere");
        world.check_state()
    };
    loop {
        world.actions(&mut actions);
        if actions.is_empty() {
            break;
        }
        // what goes wrong is rare; most of the time somebody who can run runs
        let likely = |action: &Action| match action {
            Action::Step(_) | Action::Miss(_) => true,
            Action::Tick => random.one_in(3),
            Action::Abort(_) | Action::Fail(_) => random.one_in(200),
            Action::Freeze(_) => random.one_in(400),
            Action::Crash { .. } => random.one_in(1000),
        };
        let likely: Vec<Action> = actions.iter().copied().filter(likely).collect();
        let runs = |action: &Action| !matches!(action, Action::Freeze(_) | Action::Crash { .. } | Action::Abort(_));
        match likely[..] {
            [] if !actions.iter().any(runs) => break,
            [] => continue,
            _ => act(&mut world, random.pick(&likely))?,
        }
    }
    // who stopped goes on, and the clock, until all have ended
    for p in 0..PROCESSES as u8 {
        world.process(p).frozen = false;
        world.process(p).woken = true;
    }
    let all = || 0..PROCESSES as u8;
    while !all().all(|p| world.is_done(p)) {
        match all().find(|p| world.can_step(*p)) {
            Some(p) => act(&mut world, Action::Step(p))?,
            None => {
                check!(world.now < 4 * LAST_TICK, "P7", "somebody sleeps for ever");
                act(&mut world, Action::Tick)?;
            }
        }
    }
    let left = world.section(|section| section.entries_in_use());
    check!(left == 0, "bookkeeping", "{left} keys are still in use when all have ended");
    Ok(steps)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn simulator() {
    if let Some(seed) = number("LEASE_SEED") {
        run(seed, true).unwrap_or_else(|violation| panic!("seed {seed}: {violation:?}"));
        return;
    }
    let began = Instant::now();
    let seeds = number("LEASE_SEEDS").unwrap_or(SEEDS);
    let mut steps = 0;
    for seed in 0..seeds {
        match run(seed, false) {
            Ok(n) => steps += n,
            Err(violation) => {
                panic!("{violation:?}\nreplay: LEASE_SEED={seed} cargo test -p lease_core simulator -- --nocapture")
            }
        }
    }
    eprintln!("simulator: {seeds} seeds, {steps} steps, {:.1} s", began.elapsed().as_secs_f64());
}
