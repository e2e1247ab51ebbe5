-- The common calls: checks that write nothing when they are refused. compiler.rs makes of this text a loop over keys for each rule that
-- a policy has alone, one for policies of several limits, and some for two or three limits of one rule. The rules' own text stands in
-- it, so that a check makes no closure, and a table only where a policy has limits of several rules.
--
-- A run is a part of the call: neighbouring keys of one instruction with the same number of entries. A key is read once and written once,
-- however many entries it has. An entry that a loop cannot read goes to the slow path, with those behind it of the same key. An error of
-- the server is a table, whose length is 0.
--[[ runs ]]
if program then
  local from, to
  from, to, run_count, at = unpack_('<ddH', program)
  if now < from or now >= to then return other_edges() end
end
for _ = 1, run_count do
  if program then
    local next_number
    next_number, per_key, run_keys, at = unpack_('<HHH', program, at)
    if next_number ~= number then
      number, policy = next_number, ARGV[next_number]
      limit_count, slots, cost, header, format, unused, narrow_size, narrow_header, narrow_format, algorithm, count, period, x, y, after =
        unpack_('<xxBBdBc0Bc0Hc0BBc0Bc0Bxxxdddd', policy, number == 1 and INSTRUCTION or 1)
      narrows = server_time and narrow_size > 0
    end
  end
  local last_key = key_at + (run_keys - 1) * stride
  --<loops>
  key_at = last_key + stride
end
--[[ loop ]]
for key_at = key_at, last_key, stride do
  local key = KEYS[key_at]
  local s, item, undecided, changed = pcall_('GET', key) or unused, nil, per_key, nil
  repeat
    local admitted, possible, ends = true, false, nil
    --<ask>
    if not possible then
      unread = unread or {}
      unread[#unread + 1] = { key_at, entry, undecided, number }
      entry, undecided = entry + undecided, 0
    else
      if admitted then
        --<apply>
        changed = ends
      end
      item = s
      --<answer>
      if reply then
        if not admitted then refused[#refused + 1] = entry end
        reply[entry] = item
      end
      entry, undecided = entry + 1, undecided - 1
    end
  until undecided == 0
  local failure
  if changed then
    -- See `ttl` in reply.lua. Few keys of one call have a TTL that differs from the one before.
    local quarters = floor((changed - now) / 250000) + 2
    if quarters ~= ttl_quarters then ttl_quarters, ttl_text = quarters, string.format('%d', quarters * 250) end
    local answer = pcall_('SET', key, s, 'PX', ttl_text)
    if answer.err then failure = answer end
  end
  if not reply and item then
    -- One text costs the server less than nested lists, each of which it examines for an error or a status.
    if not failure then return pack('<dBc0I4', now, changed and 0 or 1, item, call_number) end
    reply = { failure }
  elseif failure then
    for served = entry - per_key, entry - 1 do reply[served] = reply[served] and failure end
  end
end
--[[ ask one limit ]]
local tag, FIELDS
if #s == #unused then
  tag, FIELDS = unpack_(format, s)
elseif #s == narrow_size then
  tag, FIELDS = unpack_(narrow_format, s)
  if tag == narrow_header then tag = header end
end
if tag == header then
  --<advance>
  admitted = USED + cost <= count
  possible = POSSIBLE
end
--[[ apply one limit ]]
--<charge>
if narrows and SMALL then
  s = pack(narrow_format, narrow_header, FIELDS)
else
  s = pack(format, header, FIELDS)
end
--[[ ask one limit with a list ]]
local tag, FIELDS
if #s >= #unused then
  tag, FIELDS = unpack_(format, s)
  if tag == header and #s == #unused + list and list % ITEM == 0 then
    list = sub(s, #unused + 1)
    --<advance>
    admitted = USED + cost <= count
    possible = POSSIBLE
  end
end
--[[ apply one limit with a list ]]
--<charge>
s = pack(format, header, NUMBERS, #list) .. list
--[[ ask one limit with a log ]]
local tag, FIELDS, total, used, oldest
if #s >= #unused then
  tag, FIELDS = unpack_(format, s)
  if tag == header and #s == #unused + list and list % ITEM == 0 then
    list = sub(s, #unused + 1)
    --<alone>
  end
end
--[[ apply one limit with a log ]]
--<charge alone>
s = pack(format, header, NUMBERS, #list) .. list
--[[ answer one limit with a log ]]
item = s .. pack('<dddd', used + cost, 0, ends, oldest + period)
--[[ several limits ]]
local numbers = { unpack_('<' .. string.rep('BBBBddddd', limit_count), policy, after - 36) }
local last_limit = #numbers - 1
local HELPERS
--<loop>
--[[ ask several limits ]]
local value = #s >= #unused and { unpack_(format, s) }
if value and value[1] == header then
  local position = #unused + 1
  for place = 1, last_limit, 9 do
    local algorithm, first = numbers[place], numbers[place + 1]
    --<each limit>
    if not (possible and admitted) then break end
  end
  if admitted and position ~= #s + 1 then possible = false end
end
--[[ ask one of several ]]
--<advance>
admitted = USED + cost <= count
possible = POSSIBLE
--[[ ask one of several with a list ]]
local LENGTH
list = length > 0 and sub(s, position, position + length - 1) or ''
position, possible = position + length, false
if #list == length and length % ITEM == 0 then
  --<advance>
  admitted = USED + cost <= count
  possible = POSSIBLE
end
--[[ limits of a rule ]]
local NUMBERS = unpack_('FORMAT', policy, after - 36)
--<loop>
--[[ ask limits of a rule ]]
local tag, FIELDS
if #s >= #unused then
  tag, FIELDS = unpack_(format, s)
  if tag == header then
    local position = #unused + 1
    --<each limit>
    if admitted and position ~= #s + 1 then possible = false end
  end
end
--[[ apply limits of a rule ]]
local latest = 0
--<each limit>
s, ends = pack(format, header, STORED) .. LISTS, latest
--[[ apply one of a rule with a list ]]
--<charge>
if ends > latest then latest = ends end
--[[ apply several limits ]]
local latest, lists = 0, ''
for place = 1, last_limit, 9 do
  local algorithm, first = numbers[place], numbers[place + 1]
  --<each limit>
  if ends > latest then latest = ends end
end
s, ends = pack(format, values(value, 1, slots)) .. lists, latest
--[[ apply one of several ]]
--<charge>
--[[ apply one of several with a list ]]
local list_slot = numbers[place + 2]
--<charge>
value[numbers[place + 3]], lists = #list, lists .. list
