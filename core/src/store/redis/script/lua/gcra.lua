-- gcra: a meter, empty at the theoretical arrival time.
if algorithm == GCRA then return admits, charge, possible, refund, ends, nil, nil, nil, nil, nil, raise end
