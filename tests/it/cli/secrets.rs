//! Where secrets come from, and that none of them is ever printed.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

use super::{Ended, OTHER_SECRET, SECRET, countersign};

#[test]
fn c019_an_api_key_is_refused_or_warned_about_and_never_printed() {
    let key = "sk_test_4eC39HqLyjWDarjtT1zdp7dc";
    sign_with("standard", key).exits(2).shows_nothing_of(key).says("API key");
    let warned = sign_with("stripe", key).exits(0).shows_nothing_of(key);
    assert!(warned.stderr.contains("WARN") && warned.stderr.contains("API key"), "{}", warned.stderr);
    let short = sign_with("github", "hush").exits(0);
    assert!(short.stderr.contains("4 bytes") && !short.stderr.contains("hush"), "{}", short.stderr);
}

#[test]
fn c019_a_mismatch_says_how_many_secrets_were_tried() {
    let headers = sign_with("standard", SECRET).exits(0).lines();
    let verify = ["verify", "--scheme", "standard", "--body", "-", "--secret-env", "OTHER_SECRET"];
    let ended = countersign(verify).args(["--secret-env", "OTHER_SECRET"]).headers(&headers).run().exits(1);
    let text = ended.says("secret").text();
    assert!(text.starts_with("not valid: mismatch: ") && text.contains("2 secret"), "{text}");
}

#[test]
fn c020_a_secret_pasted_with_its_version_tag_is_refused() {
    let secret = format!("v1,{SECRET}");
    sign_with("standard", &secret).exits(2).shows_nothing_of(&secret).says("remove `v1,`");
}

#[test]
fn c021_bad_base64_never_becomes_a_tiny_or_empty_key() {
    for secret in ["whsec_", "whsec_!!!!", "whsec_QQ==", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLa$$"] {
        let ended = sign_with("standard", secret).exits(2).says("the secret");
        assert!(secret.len() <= "whsec_".len() || !ended.stderr.contains(secret), "{}", ended.stderr);
    }
}

#[test]
fn c022_no_secret_an_empty_or_a_blank_one_is_refused() {
    for scheme in ["standard", "stripe", "github"] {
        for secret in ["", "   ", "\t"] {
            sign_with(scheme, secret).exits(2).says("--secret-env PLANTED");
            let (_dir, path) = file(secret.as_bytes());
            sign_with_file(scheme, &path).exits(2).says("--secret-file");
        }
        for secret in ["\n", "\r\n", "\n\n", " \n"] {
            let (_dir, path) = file(secret.as_bytes());
            sign_with_file(scheme, &path).exits(2).says("--secret-file");
        }
        countersign(["sign", "--scheme", scheme, "--body", "-", "--secret-env", "UNSET_NAME"])
            .run()
            .exits(2)
            .says("not set");
        countersign(["sign", "--scheme", scheme, "--body", "-"]).run().exits(2).says("--secret-env");
        countersign(["verify", "--scheme", scheme, "--body", "-"]).run().exits(2).says("--secret-env");
    }
}

#[test]
fn c022_one_line_break_at_the_end_of_a_file_is_dropped_and_nothing_else() {
    let expected = sign_with("github", SECRET).exits(0).stdout;
    for end in ["", "\n", "\r\n"] {
        let (_dir, path) = file(format!("{SECRET}{end}").as_bytes());
        assert_eq!(only_signature(&sign_with_file("github", &path).exits(0).stdout), only_signature(&expected));
    }
    let odd: [&[u8]; 6] = [b"%\n\n", b" %", b"% ", b"\xef\xbb\xbf%", b"%\0", b"\xff%"];
    for form in odd {
        let content: Vec<u8> = form
            .iter()
            .flat_map(|byte| if *byte == b'%' { SECRET.as_bytes() } else { std::slice::from_ref(byte) })
            .copied()
            .collect();
        let (_dir, path) = file(&content);
        sign_with_file("github", &path).exits(2).says("--secret-file");
    }
    let (_dir, path) = file(&vec![b'x'; 100_000]);
    sign_with_file("github", &path).exits(2).says("too long");
}

#[test]
fn c026_a_secret_has_the_standard_alphabet_and_its_padding() {
    let whole = "whsec_+/AABBCCDDEEFFGGHHIIJJKKLLMMNNOOPPQ=";
    sign_with("standard", whole).exits(0);
    for secret in [
        whole.trim_end_matches('=').to_owned(),
        whole.replace("+/", "-_"),
        whole.replace("GG", "G\nG"),
        whole.replace("Q=", "R="),
    ] {
        sign_with("standard", &secret).exits(2).shows_nothing_of(&secret).says("the secret");
    }
}

#[test]
fn a_file_that_cannot_be_read_is_status_3() {
    let (dir, path) = file(b"x");
    sign_with_file("github", &dir.path().join("absent")).exits(3).says("absent");
    sign_with_file("github", &path.join("below-a-file")).exits(3).says("cannot be read");
    sign_with_file("github", &dir.path().to_owned()).exits(3).says("not a regular file");
}

#[test]
fn secrets_keep_the_order_of_the_command_line_across_both_flags() {
    let (_dir, path) = file(OTHER_SECRET.as_bytes());
    let headers = sign_with("standard", SECRET).exits(0).lines();
    let path = path.to_str().expect("a path");
    for (order, index) in
        [(["--secret-file", path, "--secret-env", "SECRET"], 1), (["--secret-env", "SECRET", "--secret-file", path], 0)]
    {
        let verify =
            countersign(["verify", "--scheme", "standard", "--json", "--body", "-"]).args(order).headers(&headers);
        assert_eq!(verify.run().exits(0).json()["secret"], index);
    }
}

#[test]
fn c155_a_secret_in_the_wrong_place_is_refused_and_not_printed() {
    for args in [
        vec!["sign", "--scheme", "standard", "--body", "-", SECRET],
        vec!["sign", "--scheme", "standard", "--body", "-", "--secret", SECRET],
        vec!["sign", "--scheme", "standard", "--body", "-", "--secret-env", SECRET],
        vec!["verify", "--scheme", "standard", "--body", "-", "--secret-env", "SECRET", "-H", SECRET],
        vec!["verify", "--scheme", SECRET, "--body", "-"],
        vec!["verify", "--scheme", "standard", "--body", "-", "--at", SECRET],
        vec!["inbox", "list", "--state", SECRET],
        vec![SECRET],
    ] {
        countersign(args).run().exits(2);
    }
    let joined = format!("--secret={SECRET}");
    countersign(["sign", "--scheme", "standard", "--body", "-", &joined]).run().exits(2);
    countersign(["sign", "--scheme", "standard", "--body", "-", "--secret-file", SECRET]).run().exits(3);
    let store = format!("postgres://user:{SECRET}@127.0.0.1:1/db");
    for args in [vec!["inbox", "list", "--store", &store], vec!["migrate"], vec!["purge", "--help"]] {
        let code = if args.contains(&"--help") { 0 } else { 3 };
        countersign(args).env("COUNTERSIGN_STORE", &store).run().exits(code);
    }
}

#[cfg(unix)]
#[test]
fn a_variable_that_is_not_utf_8_is_refused_without_being_printed() {
    use std::os::unix::ffi::OsStrExt as _;
    let value = std::ffi::OsStr::from_bytes(b"hunter2hunter2\xff");
    let args = ["sign", "--scheme", "github", "--body", "-", "--secret-env", "PLANTED"];
    countersign(args).env("PLANTED", value).run().exits(2).shows_nothing_of("hunter2").says("not UTF-8");
}

fn sign_with(scheme: &str, secret: &str) -> Ended {
    let args = ["sign", "--scheme", scheme, "--body", "-", "--secret-env", "PLANTED"];
    countersign(args).env("PLANTED", secret).run()
}

fn sign_with_file(scheme: &str, path: &PathBuf) -> Ended {
    countersign(["sign", "--scheme", scheme, "--body", "-", "--secret-file"]).args([path]).run()
}

fn file(content: &[u8]) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("secret");
    fs::write(&path, content).expect("to write");
    (dir, path)
}

fn only_signature(stdout: &[u8]) -> String {
    let text = String::from_utf8_lossy(stdout);
    text.lines().find(|line| line.starts_with("x-hub-signature-256")).expect("a signature").to_owned()
}
