#![doc = include_str!("../guide/flows.md")]
