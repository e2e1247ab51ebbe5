end

-- Plain checks by limits that keep no list, one for each key and all alike: the common call. It makes nothing that it
-- does not use, and leaves the values it cannot read to the rest of the script.
local odd
if together == 4 then
  local _, _, n, slots, cost, header, format, blank, at = unpack_('<BBBBdBc0Bc0Hc0', ARGV[3])
  local size, limits, made, ask, add = #blank, {}, nil, nil, nil
  for i = 1, n do
    local algorithm, o, N, P, D, X
    algorithm, o, _, _, N, P, D, X, _, at = unpack_('<BBBBddddd', ARGV[3], at)
    local kind = D == 1 and algorithm or -algorithm
    if kind ~= made then
      made, ask, add = kind, rules(algorithm, D == 1, false)
    end
    limits[i] = { o = o, n = N, p = P, d = D, x = X, ask = ask, add = add }
  end
  for run = 1, runs do
    local key = KEYS[run]
    local s = pcall_('GET', key) or blank
    local f = type(s) == 'string' and #s >= size and { unpack_(format, s) }
    if not f or f[1] ~= header then
      odd = odd or {}
      odd[#odd + 1] = run
    else
      local admitted = true
      for i = 1, n do
        local L = limits[i]
        if not L.ask(f, L.o, now, cost, L) then
          admitted = false
          break
        end
      end
      if admitted then
        local ends = 0
        for i = 1, n do
          local L = limits[i]
          local limit_ends = L.add(f, L.o, now, cost, L)
          if limit_ends > ends then ends = limit_ends end
        end
        s = pack(format, values(f, 1, slots))
        local reply = pcall_('SET', key, s, 'PX', life(ends))
        out[run + 2] = reply.err and reply or s
      else
        refused[#refused + 1] = run
        out[run + 2] = s
      end
    end
  end
  if not odd then
    -- One text is less work to reply with than lists, of which each is asked what kind of reply it means.
    if runs == 1 and type(out[3]) == 'string' then return pack('<dB', now, #refused) .. out[3] end
    return out
  end
end

