-- A common call: checks of one policy, one for each key, which write nothing when they are refused. A value that it cannot
-- read is left to the slow path, in `unread`.
if grouping == FUNCTIONS then
  -- head.lua has read the first limit.
  local limits, lists, kind, admits, charge, possible, at = {}, nil, nil, nil, nil, nil, after - 36
  for i = 1, limit_count do
    local algorithm, first, list, length, count, period, x, y, _
    algorithm, first, list, length, count, period, x, y, _, at = unpack_('<BBBBddddd', ARGV[1], at)
    local its_kind = x == 1 and algorithm or -algorithm
    if its_kind ~= kind then
      kind, admits, charge, possible = its_kind, rule_of(algorithm, x == 1, false, true)
    end
    local limit = {
      first = first, count = count, period = period, x = x, y = y, admits = admits, charge = charge, possible = possible,
    }
    if list > 0 then
      limit.algorithm, limit.list, limit.length = algorithm, list, length
      lists = lists or {}
      lists[#lists + 1] = limit
    end
    limits[i] = limit
  end
  local size = #unused
  for i = 1, key_count do
    local key = KEYS[i]
    local s = pcall_('GET', key) or unused
    local value = type(s) == 'string' and (#s == size or lists and #s > size) and { unpack_(format, s) }
    local possible, admitted = value and value[1] == header, true
    if possible then
      if lists then possible = split_lists(value, s, lists, size + 1) == #s + 1 end
      for j = 1, possible and limit_count or 0 do
        local limit = limits[j]
        local first, asked = limit.first, limit.possible
        admitted = limit.admits(value, first, now, cost, limit)
        if value[first] > now or asked and not asked(value, first, now, limit) then
          possible = false
          break
        end
        if not admitted then break end
      end
    end
    if not possible then
      unread = unread or {}
      unread[#unread + 1] = i
    else
      if admitted then
        local ends = 0
        for j = 1, limit_count do
          local limit = limits[j]
          local limit_ends = limit.charge(value, limit.first, now, cost, limit)
          if limit_ends > ends then ends = limit_ends end
        end
        s = lists and encode(value, format, slots, lists) or pack(format, values(value, 1, slots))
        -- As in one_limit.lua.
        local quarters = floor((ends - now) / 250000) + 2
        if quarters ~= ttl_quarters then ttl_quarters, ttl_text = quarters, string.format('%d', quarters * 250) end
        local answer = pcall_('SET', key, s, 'PX', ttl_text)
        if answer.err then s = answer end
      end
      if key_count == 1 and type(s) == 'string' then
        return pack('<dBc0I4', now, admitted and 0 or 1, s, call_number)
      end
      refused, reply = refused or {}, reply or {}
      if not admitted then refused[#refused + 1] = i end
      reply[i] = s
    end
  end
end
