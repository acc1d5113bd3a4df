# pg_lease builds with PGXS like any extension:
#
#   make && make install && make installcheck        any server: PG_CONFIG=/path/to/pg_config
#
# and has two targets of its own that first see to what they need:
#
#   make test     everything there is to check: build, install, run all tests
#   make demo     two workers fight for one lease
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
	@scripts/prepare
	@$(MAKE) --no-print-directory run-$@

# The model of lease_core with the bounds that take minutes.
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
include $(PGXS)

# The server's headers decide what is built. One cargo folder serves all versions: cargo keeps a crate apart per feature.
VARIANT  := pg$(MAJORVERSION)$(if $(findstring --enable-cassert,$(shell $(PG_CONFIG) --configure)),-cassert)
CARGO_TARGET_DIR ?= $(CURDIR)/target
BUILT    := $(CARGO_TARGET_DIR)/$(VARIANT)/pg_lease$(DLSUFFIX)
TEST_LIB := $(CARGO_TARGET_DIR)/$(VARIANT)/test-points/pg_lease$(DLSUFFIX)
LINKED   := $(CARGO_TARGET_DIR)/release/$(if $(filter darwin,$(PORTNAME)),libpg_lease.dylib,libpg_lease.so)
export CARGO_TARGET_DIR

# The bindings are rebuilt when this string changes, so the default server always gets the one of .cargo/config.toml.
pg_config_path := $(shell command -v $(PG_CONFIG))
export PGRX_PG_CONFIG_PATH := $(if $(filter $(shell command -v pg_config),$(pg_config_path)),pg_config,$(pg_config_path))

cargo_flags = --release --locked --no-default-features --features "pg$(MAJORVERSION)$(1)"

# cargo knows what is out of date, make does not: always ask it, where there is one (`sudo make install` may have none).
.PHONY: cargo-build
cargo-build:
	+@if command -v $(CARGO) >/dev/null; then \
		$(CARGO) build $(call cargo_flags) && $(MKDIR_P) $(dir $(BUILT)) && \
		{ cmp -s $(LINKED) $(BUILT) || cp $(LINKED) $(BUILT); }; \
	elif [ ! -e $(BUILT) ]; then \
		echo "$(CARGO) is not there: install Rust (https://rustup.rs)" >&2; false; \
	fi

$(BUILT): cargo-build ;

pg_lease$(DLSUFFIX): $(BUILT)
	@cmp -s $< $@ || cp $< $@

# The library with test points: used by TAP tests, never installed.
.PHONY: test-points
test-points: cargo-build
	+@if command -v $(CARGO) >/dev/null; then \
		$(CARGO) build $(call cargo_flags, test-points) && $(MKDIR_P) $(dir $(TEST_LIB)) && \
		cp $(LINKED) $(TEST_LIB); \
	fi

CHECK ?= regress isolation tap
export CHECK
.PHONY: installcheck
installcheck: $(if $(filter tap,$(CHECK)),test-points)
	@TEST_LIB=$(TEST_LIB) VARIANT=$(VARIANT) exec scripts/check

# `sudo` only where this user may not write to the server's folders
.PHONY: test-install
test-install: all
	@if [ -w $(DESTDIR)$(pkglibdir) ] && [ -w $(DESTDIR)$(datadir)/extension ]; then $(MAKE) --no-print-directory install; \
	else sudo -n $(MAKE) --no-print-directory install PG_CONFIG=$(PG_CONFIG) CARGO=no-cargo CARGO_TARGET_DIR=$(CARGO_TARGET_DIR); fi

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
	$(CARGO) clippy $(call cargo_flags, test-points) -- -D warnings
	@if command -v shellcheck >/dev/null; then cd scripts && shellcheck -x $$(grep -lE '^#!.*bash' * ../.ci/run); fi

.PHONY: distclean
distclean:
	rm -rf target

endif
