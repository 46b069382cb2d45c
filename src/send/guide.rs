#![doc = include_str!("../guide/sending.md")]
