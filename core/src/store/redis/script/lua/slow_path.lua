-- Every call that check.lua cannot serve: operations besides a check, several entries for one key, refusals that change
-- something, values of another form, keys with companions, entries that depend on each other.

companions = { deferred = {} }

-- The stored value of a key, '' when there is none; nil and the error when it cannot be read.
local function open_key(index)
  local base = (index - 1) * stride
  if stride == 3 then companions.log, companions.journal = KEYS[base + 2], KEYS[base + 3] end
  local s = pcall_('GET', KEYS[base + 1])
  if type(s) == 'table' then return nil, s end
  return s or ''
end

-- Writes a value, then does what was deferred until it is written. Returns the error, if any.
local function store(key, s, ends)
  local answer
  if ends == math.huge then
    answer = pcall_('SET', key, s)
  elseif ends > now then
    answer = pcall_('SET', key, s, 'PX', ttl(ends))
  else
    answer = pcall_('DEL', key)
  end
  local deferred = companions.deferred
  if #deferred > 0 then
    companions.deferred = {}
    for i = 1, #deferred do deferred[i]() end
  end
  return type(answer) == 'table' and answer.err and answer or nil
end

-- An attempt in the journal: '<ddB', the time, the cost and whether it was admitted, and the metadata.
local function add_to_journal(instruction, admitted)
  local function attempt(at, flag) return pack('<ddB', at, instruction.cost, flag) .. sub(instruction.text, instruction.meta) end
  if instruction.instead_of then call('LREM', companions.journal, 1, attempt(instruction.instead_of, 1)) end
  call('LPUSH', companions.journal, attempt(now, admitted and 1 or 0))
  call('LTRIM', companions.journal, 0, instruction.journal - 1)
  call('PEXPIRE', companions.journal, instruction.journal_ttl)
end

-- The value as the caller reads it: in the form of this policy, with the summary of a log, which only the script can read.
-- `value` is what `s` says, brought to `now`, where it is at hand.
local function item_of(instruction, s, value)
  value = value or read(s, instruction)
  if value.converted or value.others then s = write(value, instruction, true) end
  for _, limit in ipairs(instruction.limits) do
    if limit.summary then s = s .. limit:summary(value, max((limit.units or instruction.asked) + limit.reserve + limit.learned, 1)) end
  end
  return s
end

-- Whether the key has other numbers than the call brings, so that the call is not made: what it is answered then.
local function moved(value, instruction)
  local text = value.override and value.override.text or ''
  if text == instruction.override or instruction.operation == OVERRIDE then return nil end
  return { err = 'OVERRIDE =' .. text }
end

-- The list of a policy's keys that have other numbers: a hash of '<d', when they end, 0 for never, and their text. It ends when the last
-- of them does.
local MAX_OVERRIDES = 10000
local function change_overrides(key, instruction)
  local length, at = unpack_('<H', instruction.text, instruction.meta)
  local field, text = sub(instruction.text, at, at + length - 1), sub(instruction.text, at + length)
  local last = call('PTTL', key)
  if text == '' then
    call('HDEL', key, field)
    if last ~= -1 then return end
  elseif call('HEXISTS', key, field) == 0 and call('HLEN', key) >= MAX_OVERRIDES then
    local all = call('HGETALL', key)
    for i = 1, #all, 2 do
      local ends = unpack_('<d', all[i + 1])
      if ends > 0 and ends <= now then call('HDEL', key, all[i]) end
    end
    if call('HLEN', key) >= MAX_OVERRIDES then return { err = 'TIDEGATEFULL too many overrides' } end
  end
  if text ~= '' then
    local ends = instruction.block > 0 and now + instruction.block or 0
    call('HSET', key, field, pack('<d', ends) .. text)
    if ends == 0 then
      if last >= 0 then call('PERSIST', key) end
    elseif last ~= -1 then
      call('PEXPIRE', key, string.format('%d', max(last, ceil(instruction.block / 1000) + 500)))
    end
    return
  end
  -- A key without an end may have been the last one.
  local longest = 0
  for _, item in ipairs(call('HVALS', key)) do
    local ends = unpack_('<d', item)
    if ends == 0 then return end
    longest = max(longest, ends - now)
  end
  if longest > 0 then call('PEXPIRE', key, string.format('%d', ceil(longest / 1000) + 500)) end
end

-- The value of a key that is cleared: its moment, for as long as something is counted that was charged before. A second clear at
-- the same moment is told from the first. Returns the value, its instruction, and when it ends; nothing when no trace is needed.
local function cleared(value, instruction)
  local ends = value and max(latest('clear_ends', value, instruction), value.traces and value.traces.ends or 0) or 0
  if ends <= now and not (value and value.override) then return nil, nil, 0 end
  local last = value.traces and value.traces.cleared or 0
  local traces = { cleared = last < now and now or last + 1, refunded_at = 0, since = 0, refunded = 0, ends = ends }
  local fresh = { unpack_(instruction.format, instruction.unused) }
  for _, limit in ipairs(instruction.lists) do fresh[limit.list] = '' end
  fresh.traces = ends > now and traces or nil
  if value and value.override then
    fresh.override = value.override
    ends = max(ends, value.override.ends > 0 and value.override.ends or math.huge)
  end
  return fresh, instruction, ends
end

-- Runs the entries of one key, `n` instructions of the program from `at` on: the value is read once and written once.
local function serve_key(index, entry, n, program, at)
  local key = KEYS[(index - 1) * stride + 1]
  local first = instructions[program and program[at + 1] or 1]
  if first.operation == LIST_OVERRIDES then
    reply[entry + 1] = call('HGETALL', key)
    return
  elseif first.operation == NOTE_OVERRIDE then
    reply[entry + 1] = change_overrides(key, first) or ''
    return
  end
  local s, failure = open_key(index)
  local value, last, ends, changed = nil, nil, 0, false
  for i = 1, n do
    local instruction = instructions[program and program[at + i] or 1]
    local slot, operation = entry + i, instruction.operation
    if failure then
      reply[slot] = failure
    elseif operation == CLEAR then
      if stride == 3 then call('DEL', companions.log) end
      -- What cannot be read is forgotten too.
      value, last, ends = cleared(s ~= '' and read(s, instruction) or nil, instruction)
      s, changed = value and write(value, instruction) or '', true
      reply[slot] = instruction.has_summaries and item_of(instruction, s) or s
    elseif operation == NOTE_DENIAL then
      add_to_journal(instruction, false)
      reply[slot] = s
    elseif operation == JOURNAL then
      reply[slot] = call('LRANGE', companions.journal, 0, -1)
    else
      local reason
      if instruction ~= last or not value then value, reason = read(s, instruction) end
      last = instruction
      local elsewhere = value and moved(value, instruction)
      if not value then
        reply[slot] = { err = 'TIDEGATE the key ' .. reason }
      elseif elsewhere then
        reply[slot] = elsewhere
      else
        local converted = value.converted or value.others
        -- A caller that goes on waiting where it is refused is not denied.
        local waits = operation == CHECK and instruction.undone or operation == TURN and value.learned
        local admitted, changed_value, mask, granted = run(instruction, value, s)
        if changed_value then
          s = write(require_possible(changed_value, instruction), instruction)
          ends, changed = ends_of(changed_value, instruction), true
          if changed_value ~= value then value = nil end
        end
        if not admitted then refused[#refused + 1] = entry + i + mask end
        if instruction.journal > 0 and (admitted or not waits)
          and (operation == CHECK or operation == TURN or operation == TAKE or operation == CHARGE) then
          add_to_journal(instruction, admitted)
        end
        local item = s
        if converted then
          item = item_of(instruction, s)
        elseif instruction.has_summaries then
          item = item_of(instruction, s, value)
        end
        reply[slot] = (operation == TAKE or operation == LEASE or operation == TURN) and item .. pack('<d', granted) or item
      end
    end
  end
  if changed then
    failure = store(key, s, ends)
    if failure then
      for i = 1, n do reply[entry + i] = failure end
    end
  end
end

-- Why a key could not be served: a command on it failed, or its bytes are of no state that a rule can have.
local function failure_of(why) return { err = error_of_command(why) or 'TIDEGATE the key holds a broken state' } end

-- The same, where each key fails alone.
local function try_key(index, entry, n, program, at)
  companions.deferred = {}
  local fine, why = pcall(serve_key, index, entry, n, program, at)
  if not fine then
    for i = 1, n do reply[entry + i] = failure_of(why) end
  end
end

-- The fields of a value, and the value as it was when it had these: a refused entry of several limits may have advanced those of which
-- the next takes nothing.
local function fields_of(value)
  local fields = {}
  for slot, field in pairs(value) do
    if type(slot) == 'number' then fields[slot] = field end
  end
  return fields
end
local function restore(value, fields)
  -- What a limit remembers of a value goes by its fields.
  for slot in pairs(value) do
    if type(slot) == 'table' then value[slot] = nil end
  end
  for slot, field in pairs(fields) do value[slot] = field end
end

-- Runs entries of which one refusal refuses all: nothing is written before every one was asked, and nothing at all when the
-- call is a dry run. Returns an error that fails the call.
local function serve_together(program)
  local opened, entries, dry_run, all_refused, entry, at = {}, {}, grouping == DRY_RUN, grouping == RECORD_REFUSALS, 0, 0
  local moved_entries = {}
  for index = 1, key_count do
    local n = program and program[at + 1] or 1
    local s, failure = open_key(index)
    if failure then return failure end
    local key = { s = s }
    for i = 1, n do
      local instruction = instructions[program and program[at + 1 + i] or 1]
      local reason
      if not key.value then
        key.value, reason = read(s, instruction)
        if not key.value then return { err = 'TIDEGATE the key ' .. reason } end
      elseif key.reader ~= instruction then
        adopt(key.value, instruction)
        reserve_learned(key.value, instruction)
      end
      key.reader = instruction
      moved_entries[#moved_entries + 1] = moved(key.value, instruction) or { err = 'OVERRIDE -' }
      if moved_entries[#moved_entries].err ~= 'OVERRIDE -' then moved_entries.any = true end
      local fields = n > 1 and #instruction.limits > 1 and fields_of(key.value)
      local admitted, changed_value, mask = run(instruction, key.value, s, true)
      local spared = not admitted and spares(instruction, key.value)
      if fields and not admitted then restore(key.value, fields) end
      if changed_value then key.changed, key.instruction = require_possible(changed_value, instruction), instruction end
      if not admitted then
        refused[#refused + 1] = entry + i + mask
        if not instruction.shadow then all_refused = true end
      end
      entries[entry + i] = {
        key = key, instruction = instruction, admitted = admitted, spared = spared,
      }
    end
    opened[index] = key
    entry, at = entry + n, at + n + 1
  end
  -- Nothing is done where one of them has other numbers.
  if moved_entries.any then
    companions.deferred, refused = {}, {}
    for i = 1, entry do reply[i] = moved_entries[i] end
    return nil
  end
  for index = 1, key_count do
    local key, base = opened[index], (index - 1) * stride
    local s, changed, instruction = key.s, key.changed, key.instruction
    if stride == 3 then companions.log, companions.journal = KEYS[base + 2], KEYS[base + 3] end
    if all_refused or dry_run then
      changed, companions.deferred = nil, {}
    elseif changed then
      s = write(changed, instruction)
    end
    for _, item in ipairs(entries) do
      if item.key == key and not item.admitted and not dry_run then
        local value = refuse(item.instruction, s, (read(s, item.instruction).blocked_until or 0) > now, item.spared)
        if value then s, changed, instruction = write(value, item.instruction), value, item.instruction end
      end
    end
    if changed then
      local failure = store(KEYS[base + 1], s, ends_of(changed, instruction))
      if failure then return failure end
    end
    for i, item in ipairs(entries) do
      if item.key == key then
        if item.instruction.journal > 0 and not dry_run then
          add_to_journal(item.instruction, item.admitted and not all_refused)
        end
        reply[i] = item_of(item.instruction, s)
      end
    end
  end
end
