-- leaky-bucket: a meter of the units in the queue; Rust derives the delay from the value.
if algorithm == 8 then return admits, charge, possible, refund, ends end
