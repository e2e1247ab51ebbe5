-- gcra: a meter, empty at the theoretical arrival time.
if algorithm == 7 then return admits, charge, possible, refund, ends, nil, nil, nil, nil, nil, raise end
