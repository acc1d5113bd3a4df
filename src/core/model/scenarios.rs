use super::search::search;
use super::world::{Client, Scenario, Statement, Statement::*, ticks};
use crate::lease::{Lease, State};
use crate::time::Time;

type Row = Option<Lease<u8>>;

fn held(owner: u8, epoch: i64, until: i64) -> Row {
    Some(Lease {
        state: State::Held,
        epoch,
        owner: Some(owner),
        ttl: ticks(until).0,
        granted_at: Time(0),
        renewed_at: Time(0),
        expires_at: ticks(until),
        clock_base: Time(0),
    })
}

fn free(epoch: i64) -> Row {
    Some(Lease { state: State::Free, owner: None, ..held(0, epoch, 0).unwrap() })
}

fn client(owner: u8, transactions: &[&[Statement]]) -> Client {
    Client { owner, transactions: transactions.iter().map(|t| t.to_vec()).collect() }
}

fn run(scenario: &Scenario) {
    let report = search(scenario);
    eprintln!(
        "{}: {} states, {} steps, depth {}, {:.1?}",
        scenario.name, report.states, report.steps, report.depth, report.took
    );
    if let Some(trace) = report.violation {
        panic!("{}\n{trace}", scenario.name);
    }
}

const A: u8 = 0;
const B: u8 = 1;
const C: u8 = 2;
const NONE: Row = None;

macro_rules! scenarios {
    ($($name:ident: $rows:expr, $clients:expr, $ticks:expr, $aborts:expr, $freezes:expr, $crashes:expr;)*) => {
        $(
            #[test]
            fn $name() {
                run(&Scenario {
                    name: stringify!($name),
                    rows: $rows.into(),
                    clients: $clients.into(),
                    last_tick: $ticks,
                    aborts: $aborts,
                    freezes: $freezes,
                    crashes: $crashes,
                });
            }
        )*
    };
}

fn acquire(ttl: i64) -> Statement {
    Acquire { key: 0, ttl }
}
fn wait(ttl: i64) -> Statement {
    WaitAcquire { key: 0, ttl }
}
fn renew(ttl: i64) -> Statement {
    Renew { key: 0, ttl }
}
const RELEASE: Statement = Release { key: 0 };
const GUARD: Statement = Guard { key: 0 };
const LAPSE: Statement = Lapse { key: 0 };
const PURGE: Statement = Purge { key: 0 };
const FORCE: Statement = ForceRelease { key: 0 };

scenarios! {
    takeover: [held(A, 1, 1)],
        [client(A, &[&[renew(2)], &[RELEASE]]), client(B, &[&[acquire(2)]])], 4, 1, 1, 1;
    race_for_a_free_key: [free(3)],
        [client(A, &[&[acquire(1)]]), client(B, &[&[acquire(2)]]), client(C, &[&[acquire(1)]])], 2, 1, 0, 0;
    race_for_a_new_key: [NONE],
        [client(A, &[&[acquire(1)], &[RELEASE]]), client(B, &[&[acquire(2)]])], 3, 1, 1, 1;
    queue: [held(A, 1, 2)],
        [client(A, &[&[RELEASE]]), client(B, &[&[wait(1)]]), client(C, &[&[wait(1)]])], 4, 1, 0, 0;
    queue_stopped: [held(A, 1, 1)],
        [client(A, &[&[RELEASE]]), client(B, &[&[wait(1)]]), client(C, &[&[wait(1)]])], 4, 0, 1, 0;
    queue_behind_a_claim: [NONE],
        [client(A, &[&[acquire(2)]]), client(B, &[&[wait(1)]]), client(C, &[&[wait(1)]])], 4, 1, 1, 0;
    newcomer: [free(1)],
        [client(A, &[&[acquire(2)]]), client(B, &[&[wait(1)]]), client(C, &[&[acquire(1)]])], 3, 1, 1, 0;
    newcomer_lapsed: [held(A, 1, 1)],
        [client(A, &[&[renew(2)]]), client(B, &[&[wait(1)]]), client(C, &[&[acquire(1)]])], 4, 1, 1, 0;
    renew_shorter: [held(A, 1, 3)],
        [client(A, &[&[renew(1)]]), client(B, &[&[wait(1)]]), client(C, &[&[wait(1)]])], 4, 1, 1, 0;
    acquire_renew: [free(1)],
        [client(A, &[&[acquire(3), renew(1)]]), client(B, &[&[wait(1)]])], 4, 1, 1, 1;
    acquire_acquire: [free(1)],
        [client(A, &[&[acquire(1), acquire(2)]]), client(B, &[&[acquire(1)]]), client(C, &[&[wait(1)]])], 3, 1, 0, 0;
    acquire_release: [NONE],
        [client(A, &[&[acquire(1), RELEASE]]), client(B, &[&[acquire(2), RELEASE]])], 4, 1, 1, 0;
    release_acquire: [held(A, 1, 2)],
        [client(A, &[&[RELEASE, acquire(2)]]), client(B, &[&[wait(2)]])], 4, 1, 1, 0;
    same_owner: [held(A, 1, 2)],
        [client(A, &[&[renew(2)]]), client(A, &[&[acquire(1)]]), client(B, &[&[wait(1)]])], 4, 1, 0, 0;
    holder_behind_a_queue: [held(A, 1, 2)],
        [client(A, &[&[renew(3)]]), client(A, &[&[RELEASE]]), client(B, &[&[wait(1)]])], 4, 1, 0, 0;
    guard: [held(A, 1, 2)],
        [client(A, &[&[GUARD]]), client(A, &[&[RELEASE]]), client(B, &[&[acquire(1)]])], 3, 1, 0, 0;
    guard_wait: [held(A, 1, 1)],
        [client(A, &[&[GUARD]]), client(B, &[&[wait(1)]]), client(C, &[&[wait(1)]])], 4, 1, 1, 0;
    guard_renew: [held(A, 1, 1)],
        [client(A, &[&[GUARD]]), client(A, &[&[renew(2)]]), client(B, &[&[acquire(1)]])], 4, 1, 0, 0;
    guard_own: [free(1)],
        [client(A, &[&[acquire(2), GUARD, RELEASE]]), client(B, &[&[wait(1)]])], 4, 1, 1, 0;
    guards_and_release: [held(A, 1, 2)],
        [client(A, &[&[GUARD]]), client(A, &[&[GUARD]]), client(A, &[&[RELEASE]])], 3, 1, 1, 0;
    guard_force: [held(A, 1, 3)],
        [client(A, &[&[GUARD]]), client(B, &[&[FORCE]]), client(C, &[&[wait(1)]])], 3, 1, 0, 0;
    savepoint: [free(1)],
        [client(A, &[&[acquire(1), Savepoint, acquire(3), RollBackTo]]), client(B, &[&[wait(1)]])], 4, 1, 1, 0;
    savepoint_only: [held(B, 1, 1)],
        [client(A, &[&[Savepoint, acquire(2), RollBackTo]]), client(B, &[&[wait(1)]]), client(C, &[&[wait(1)]])], 4, 1, 0, 0;
    savepoint_release: [held(A, 1, 1)],
        [client(A, &[&[renew(2), Savepoint, RELEASE, ReleaseSavepoint]]), client(B, &[&[wait(1)]])], 4, 1, 1, 0;
    savepoint_wait: [held(B, 1, 2)],
        [client(A, &[&[Savepoint, wait(2), ReleaseSavepoint]]), client(B, &[&[RELEASE]]), client(C, &[&[wait(1)]])], 3, 1, 0, 0;
    savepoint_guard: [held(A, 1, 2)],
        [client(A, &[&[Savepoint, GUARD, RollBackTo, acquire(1)]]), client(A, &[&[RELEASE]])], 3, 1, 1, 0;
    sweeper: [held(A, 1, 1)],
        [client(A, &[&[renew(2)]]), client(B, &[&[acquire(1)]]), client(C, &[&[LAPSE], &[LAPSE]])], 3, 1, 0, 0;
    sweeper_queue: [held(A, 1, 1)],
        [client(A, &[&[wait(1)]]), client(B, &[&[wait(1)]]), client(C, &[&[LAPSE], &[LAPSE]])], 3, 1, 1, 0;
    sweeper_crash: [held(A, 1, 1)],
        [client(A, &[&[renew(1)]]), client(B, &[&[acquire(1)]]), client(C, &[&[LAPSE]])], 3, 0, 0, 1;
    purge: [free(3)],
        [client(A, &[&[acquire(1)], &[RELEASE]]), client(B, &[&[PURGE]]), client(C, &[&[PURGE]])], 2, 1, 0, 0;
    purge_queue: [held(A, 3, 1)],
        [client(A, &[&[RELEASE]]), client(B, &[&[wait(1)]]), client(C, &[&[PURGE], &[PURGE]])], 3, 1, 0, 0;
    purge_crash: [held(A, 3, 1)],
        [client(A, &[&[RELEASE]]), client(B, &[&[acquire(1)]]), client(C, &[&[LAPSE], &[PURGE]])], 2, 0, 0, 1;
    purge_two_keys: [free(5), free(3)],
        [client(A, &[&[acquire(1)]]), client(B, &[&[PURGE]]), client(C, &[&[Purge { key: 1 }]])], 1, 1, 0, 0;
    force: [held(A, 1, 3)],
        [client(A, &[&[renew(3)]]), client(B, &[&[FORCE]]), client(C, &[&[wait(1)]])], 3, 1, 1, 0;
    force_unowned: [free(1)],
        [client(A, &[&[acquire(3)]]), client(B, &[&[FORCE]]), client(C, &[&[wait(1)]])], 3, 1, 0, 0;
    force_new: [NONE],
        [client(A, &[&[acquire(3)]]), client(B, &[&[FORCE]]), client(C, &[&[wait(1)]])], 3, 1, 0, 0;
    two_keys: [free(1), free(1)],
        [client(A, &[&[acquire(2), Acquire { key: 1, ttl: 2 }]]), client(B, &[&[Acquire { key: 1, ttl: 1 }, acquire(1)]])], 3, 1, 1, 0;
    deadlock: [free(1), free(1)],
        [client(A, &[&[wait(2), WaitAcquire { key: 1, ttl: 2 }]]), client(B, &[&[WaitAcquire { key: 1, ttl: 1 }, wait(1)]])], 4, 1, 1, 0;
    crossed_guards: [held(A, 1, 2), held(B, 1, 2)],
        [client(A, &[&[GUARD, RELEASE]]), client(A, &[&[GUARD]]), client(A, &[&[RELEASE]])], 2, 1, 0, 0;
    crossed_guards_two_keys: [held(A, 1, 2), held(A, 1, 2)],
        [client(A, &[&[GUARD, Release { key: 1 }]]), client(A, &[&[Guard { key: 1 }, RELEASE]])], 3, 1, 1, 0;
    advance: [held(A, 1, 2)],
        [client(A, &[&[renew(2)]]), client(B, &[&[wait(1)]]), client(C, &[&[AdvanceEpochs]])], 3, 1, 0, 0;
    advance_guard: [held(A, 1, 2)],
        [client(A, &[&[GUARD]]), client(A, &[&[RELEASE]]), client(C, &[&[AdvanceEpochs]])], 2, 1, 0, 1;
}
