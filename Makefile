# pg_lease builds with PGXS like any extension:
#
#   make && make install && make installcheck        any server: PG_CONFIG=/path/to/pg_config
#
# and has two targets of its own that first see to what they need:
#
#   make test     everything there is to check: build, install, run all tests
#   make demo     two workers fight for one lease
#
# and two for what takes long and needs more than a server:
#
#   make check-postgres   PostgreSQL's own tests, with and without pg_lease (fetches its source)
#   make valgrind         a part of the tests on a server under valgrind
#
# All tests run on servers of their own, in a temporary folder.

.DEFAULT_GOAL := all

EXTENSION = pg_lease
MODULES   = pg_lease
DATA      = $(wildcard sql/pg_lease--*.sql)

PG_CONFIG ?= pg_config
CARGO     ?= cargo
export PG_CONFIG CARGO

PGXS := $(shell $(PG_CONFIG) --pgxs 2>/dev/null)

.PHONY: test demo lint model
test demo lint:
	@scripts/prepare $(if $(filter lint,$@),shellcheck)
	@$(MAKE) --no-print-directory run-$@

# The model of lease_core with the full bounds: about half an hour on two cores.
MODEL_TESTS = -- --ignored
model:
	$(CARGO) test --release --locked -p lease_core $(MODEL_TESTS)

ifeq ($(wildcard $(PGXS)),)

.PHONY: all install uninstall installcheck clean
all install uninstall installcheck clean:
	@scripts/prepare --check

else

# tests are run by scripts/check: PGXS would look for a server that is already running
NO_INSTALLCHECK = 1
EXTRA_CLEAN = target/check
# there is no LLVM bitcode of a Rust library (set before PGXS reads it from the server's configuration)
override with_llvm = no
# for scripts/check (PGXS would empty it). TAP tests mostly wait: two at a time take half as long.
override PROVE_FLAGS := $(or $(PROVE_FLAGS),-j2)
export PROVE_FLAGS
include $(PGXS)

# What is built depends on the server's headers, so each kind of server has a library of its own. The dependencies
# are compiled once for all: one cargo folder.
VARIANT := pg$(MAJORVERSION)$(if $(findstring --enable-cassert,$(shell $(PG_CONFIG) --configure)),-cassert)
CARGO_TARGET_DIR ?= $(CURDIR)/target
BUILT    := $(CARGO_TARGET_DIR)/$(VARIANT)/pg_lease$(DLSUFFIX)
TEST_LIB := $(CARGO_TARGET_DIR)/$(VARIANT)/test-points/pg_lease$(DLSUFFIX)
LINKED   := libpg_lease$(if $(filter darwin,$(PORTNAME)),.dylib,.so)
export CARGO_TARGET_DIR

# The bindings are rebuilt when this string changes, so the default server always gets the one of .cargo/config.toml.
pg_config_path := $(shell command -v $(PG_CONFIG))
export PGRX_PG_CONFIG_PATH := $(if $(filter $(shell command -v pg_config),$(pg_config_path)),pg_config,$(pg_config_path))

cargo_flags = --release --locked --no-default-features --features "pg$(MAJORVERSION) $(1)"

SOURCES := Cargo.toml Cargo.lock build.rs $(shell find src -type f)

# cargo gives the libraries of all features one file name, and takes the one that is there for the one it would build:
# remove it first. The result is as old as the beginning of its build, for sources that change meanwhile.
$(BUILT) $(TEST_LIB): $(SOURCES)
	@$(MKDIR_P) $(@D)
	@touch $(@D)/begun
	@rm -f $(CARGO_TARGET_DIR)/release/deps/$(LINKED)
	$(CARGO) build $(call cargo_flags,$(filter test-points,$(notdir $(@D))))
	@cp $(CARGO_TARGET_DIR)/release/$(LINKED) $@
	@touch -r $(@D)/begun $@
# one at a time, and the library to install first
$(TEST_LIB): | $(BUILT)

.PHONY: test-points
test-points: $(TEST_LIB)

# The server that this one was built for may have changed since.
.PHONY: force
pg_lease$(DLSUFFIX): $(BUILT) force
	@if grep -q lease_test_panic $<; then echo "$<: has test points, not to be installed" >&2; exit 1; fi
	@cmp -s $< $@ || cp $< $@

CHECK ?= regress isolation tap
export CHECK
.PHONY: installcheck
# TAP tests take the library with test points from where it was built: it is never installed
installcheck: $(if $(filter tap,$(CHECK)),$(TEST_LIB))
	@TEST_LIB=$(TEST_LIB) VARIANT=$(VARIANT) exec scripts/check

# SQL and isolation tests on a server under valgrind, but for those in which a lease must outlast a few statements.
# PG_CONFIG should be that of a server built with assertions and -DUSE_VALGRIND: then valgrind knows what palloc gives out.
VALGRIND_REGRESS ?= 20_arguments 21_interval 22_text 32_procedures 34_force_release 35_fence 40_privileges
VALGRIND_ISOLATION ?= fence guard in-flight same-owner serializable
.PHONY: valgrind
valgrind: test-install
	@VALGRIND=yes CHECK="regress isolation" REGRESS="$(VALGRIND_REGRESS)" ISOLATION="$(VALGRIND_ISOLATION)" \
	VARIANT=$(VARIANT)-valgrind exec scripts/check

# The tests of waiting with ten times the rounds, and ten minutes of contention: about half an hour.
SOAK_TESTS = t/020_wait_offsets.pl t/021_wait_order.pl t/023_wait_storm.pl t/024_deadlocks.pl
.PHONY: soak
soak: test-install
	@PG_LEASE_ROUNDS=10000 PG_LEASE_SECONDS=600 PG_TEST_TIMEOUT_DEFAULT=3600 \
	$(MAKE) --no-print-directory installcheck CHECK=tap PROVE_TESTS="$(SOAK_TESTS)"

# PostgreSQL's own tests, with and without the extension
.PHONY: check-postgres
check-postgres: test-install
	@exec scripts/check-postgres

# `sudo` only where this user may not write to the server's folders
.PHONY: test-install
test-install: all
	@if [ -w $(DESTDIR)$(pkglibdir) ] && [ -w $(DESTDIR)$(datadir)/extension ]; then $(MAKE) --no-print-directory install; \
	else sudo -n $(MAKE) --no-print-directory install PG_CONFIG=$(PG_CONFIG); fi

.PHONY: run-test run-demo run-lint
run-test:
	@if [ -x scripts/check-testing ]; then scripts/check-testing; fi
	$(CARGO) test --release --locked -p lease_core
	@$(MAKE) --no-print-directory test-install
	@$(MAKE) --no-print-directory installcheck

run-demo: test-install
	@exec scripts/demo

run-lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy $(call cargo_flags) --workspace --all-targets -- -D warnings
	$(CARGO) clippy $(call cargo_flags,test-points) -- -D warnings
	cd scripts && shellcheck -x -S warning $$(grep -lE '^#!.*bash' * ../bench/* ../.ci/run)

.PHONY: distclean
distclean:
	rm -rf target

endif
