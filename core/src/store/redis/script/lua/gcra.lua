-- gcra: a meter, empty at the theoretical arrival time.
if algorithm == 7 then return admits, charge, refund, ends, nil, nil, nil, nil, nil, raise end
