//! Compiles src/pg/shim.c and binds, as raw externs, what it declares and what src/pg/externs.list names.
//!
//! pgrx-pg-sys wraps each C function in an error boundary of its own, which loses parts of an error and cannot be
//! handed to C as a callback; hence our own declarations, over its types.

use bindgen::callbacks::{DeriveInfo, ParseCallbacks};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const SHIM_C: &str = "src/pg/shim.c";
const SHIM_H: &str = "src/pg/shim.h";
/// One C name a line, `#` starts a comment.
const EXTERNS: &str = "src/pg/externs.list";

fn main() {
    for input in [SHIM_C, SHIM_H, EXTERNS] {
        println!("cargo:rerun-if-changed={input}");
    }
    println!("cargo:rerun-if-env-changed=PGRX_PG_CONFIG_PATH");

    let features = ["PG15", "PG16", "PG17", "PG18"].map(|v| env::var_os(format!("CARGO_FEATURE_{v}")).is_some());
    assert_eq!(
        features.iter().filter(|&&on| on).count(),
        1,
        "choose one of the features pg15, pg16, pg17, pg18 (with --no-default-features)"
    );

    let server_headers = pg_config("--includedir-server");
    let mut flags = vec![format!("-I{server_headers}"), "-Isrc/pg".to_owned()];
    flags.extend(pg_config("--cppflags").split_whitespace().map(str::to_owned));
    let version = env::var("CARGO_PKG_VERSION").expect("set by cargo");
    flags.push(format!("-DPG_LEASE_VERSION=\"{version}\""));
    if env::var_os("CARGO_FEATURE_TEST_POINTS").is_some() {
        flags.push("-DPG_LEASE_TEST_POINTS".to_owned());
    }

    compile_shim(&flags);
    bind(&flags);
}

fn pg_config(option: &str) -> String {
    let program = env::var("PGRX_PG_CONFIG_PATH").unwrap_or_else(|_| "pg_config".to_owned());
    let output = Command::new(&program).arg(option).output().unwrap_or_else(|e| panic!("cannot run {program}: {e}"));
    assert!(output.status.success(), "{program} {option} failed");
    String::from_utf8(output.stdout).expect("pg_config prints UTF-8").trim().to_owned()
}

fn compile_shim(flags: &[String]) {
    let mut build = cc::Build::new();
    // -fexceptions: a Rust panic may cross these frames
    build.file(SHIM_C).flag("-fexceptions").warnings(true).extra_warnings(false).warnings_into_errors(true);
    // PostgreSQL's headers want these off
    build.flag_if_supported("-Wno-declaration-after-statement").flag_if_supported("-Wno-unused-parameter");
    for flag in flags {
        build.flag(flag);
    }
    build.compile("pg_lease_shim");
}

/// The shim's structs are plain data, which bindgen cannot know: the types in them are pgrx-pg-sys's.
#[derive(Debug)]
struct PlainData;

impl ParseCallbacks for PlainData {
    fn add_derives(&self, _: &DeriveInfo<'_>) -> Vec<String> {
        ["Clone", "Copy"].map(str::to_owned).to_vec()
    }
}

fn bind(flags: &[String]) {
    let list = fs::read_to_string(EXTERNS).unwrap_or_default();
    let names: Vec<&str> =
        list.lines().map(|line| line.split('#').next().unwrap_or("").trim()).filter(|name| !name.is_empty()).collect();

    let mut builder = bindgen::Builder::default()
        .header(SHIM_H)
        .clang_args(flags)
        .allowlist_file(format!(".*{}", SHIM_H.replace('.', "\\.")))
        // types, constants and variables are pgrx-pg-sys's, one definition of each
        .allowlist_recursively(false)
        .raw_line("use pgrx_pg_sys::*;")
        .override_abi(bindgen::Abi::CUnwind, ".*")
        .default_enum_style(bindgen::EnumVariation::ModuleConsts)
        .rust_edition(bindgen::RustEdition::Edition2024)
        .parse_callbacks(Box::new(PlainData))
        .derive_copy(false)
        .layout_tests(true)
        .generate_comments(false);
    for name in &names {
        builder = builder.allowlist_function(name).allowlist_var(name).allowlist_type(name);
    }
    let bindings = builder.generate().expect("bindgen");

    let text = bindings.to_string();
    for name in &names {
        let bound = text.split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|word| word == *name);
        assert!(bound, "{EXTERNS}: {name} is not declared by {SHIM_H} or what it includes, in this server's version");
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo"));
    fs::write(Path::new(&out).join("externs.rs"), text).expect("OUT_DIR is writable");
}
