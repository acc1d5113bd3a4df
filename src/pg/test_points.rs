//! Named places where a test can hold a session: only with the feature `test-points`, never in what is installed.
//!
//! A session waits at a point that its setting pg_lease.test_points names (a list, by commas), for as long as another
//! session holds `pg_advisory_lock(125534, hashtext('name'))`. The wait is one for a heavyweight lock, so that
//! isolationtester and pg_blocking_pids() see it. `name=error` and `name=panic` in the list raise instead of waiting.
//! A few names are no places but change what a process does, where it asks by `is_named`.

/// `test_point!("name")?` where errors may be raised, `test_point!(quiet "name")` where not, as in commit callbacks.
macro_rules! test_point {
    (quiet $name:literal) => {
        #[cfg(feature = "test-points")]
        $crate::pg::test_points::reach_quietly($name)
    };
    ($name:literal) => {{
        #[cfg(feature = "test-points")]
        let reached = $crate::pg::test_points::reach($name);
        #[cfg(not(feature = "test-points"))]
        let reached: $crate::pg::Result<()> = Ok(());
        reached
    }};
}
#[allow(unused_imports)]
pub(crate) use test_point;

#[cfg(feature = "test-points")]
pub use enabled::*;

#[cfg(feature = "test-points")]
mod enabled {
    use crate::pg::error::{Report, Result, SqlState};
    use crate::pg::function::{Call, Reply, pg_function};
    use crate::pg::guard::{c_text, call};
    use crate::pg::{guc, sys};

    static TEST_POINTS: guc::Text = guc::Text::new();
    static SPEC: guc::Spec = guc::Spec {
        name: c"pg_lease.test_points",
        description: c"Places where this session waits for a test.",
        details: None,
        change: guc::Change::Session,
    };

    pub fn define() -> Result<()> {
        TEST_POINTS.define(&SPEC)
    }

    fn armed(name: &str, what: &str) -> bool {
        let item = |point: &&[u8]| point.trim_ascii().strip_prefix(name.as_bytes()) == Some(what.as_bytes());
        TEST_POINTS.get().split(|&b| b == b',').any(|point| item(&point))
    }

    pub fn is_named(name: &str) -> bool {
        armed(name, "")
    }

    pub fn reach(name: &'static str) -> Result<()> {
        if armed(name, "=error") {
            return Err(Report::new(SqlState(*b"LE998"), format!("forced error at {name}")).into());
        }
        assert!(!armed(name, "=panic"), "forced panic at {name}");
        if !armed(name, "") {
            return Ok(());
        }
        let name = c_text(Some(name.as_bytes()));
        // SAFETY: the name is static.
        call(|| unsafe { sys::pgl_test_wait(name) })
    }

    pub fn reach_quietly(name: &'static str) {
        if armed(name, "") {
            // SAFETY: the name is static; raises nothing.
            unsafe { sys::pgl_test_wait_quietly(c_text(Some(name.as_bytes()))) };
        }
    }

    pg_function!(lease_test_panic, test_panic);
    pg_function!(lease_test_error, test_error);
    pg_function!(lease_test_observe, test_observe);

    /// `lease_test_panic(message text) RETURNS void`
    fn test_panic(call: Call<'_>) -> Result<Reply<'_>> {
        let message = call.text(0)?.unwrap_or_default();
        panic!("{}", String::from_utf8_lossy(message));
    }

    /// `lease_test_error(kind int4) RETURNS void`: raises, below us, an error with every field (kind 0) or one from
    /// within another function (kind 1).
    fn test_error(call: Call<'_>) -> Result<Reply<'_>> {
        let kind = call.int4(0).unwrap_or(0);
        // SAFETY: no conditions.
        crate::pg::guard::call(|| unsafe { sys::pgl_test_error(kind) })?;
        Ok(call.null())
    }
    /// `lease_test_observe() RETURNS void`: from the next transaction's end on, plays another module with callbacks of its
    /// own in this session.
    fn test_observe(call: Call<'_>) -> Result<Reply<'_>> {
        // SAFETY: no conditions.
        crate::pg::guard::call(|| unsafe { sys::pgl_test_observe() })?;
        Ok(call.null())
    }
}
