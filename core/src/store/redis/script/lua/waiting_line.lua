-- The line of those who wait for a key over all processes: of each process the first caller of each class. docs/adr/0036 has the
-- reasons. A caller that was overtaken this often, by calls of its class or below, is served before all of these that came later.
local MAX_OVERTAKEN, MAX_LINE = 16, 64
-- The upper bits of a waiter's number are the rank of its class: the less it leaves free, the smaller.
local function rank_of(waiter) return floor(waiter.id / RANK_OF_WAITERS) end

-- Whether a caller of this class that came later than `other` goes before it only if it was not overtaken too often.
local function is_behind(waiter, other)
  return other.id ~= waiter.id and other.arrived < waiter.arrived and rank_of(other) <= rank_of(waiter)
end

local function must_yield(value, waiter)
  for _, other in ipairs(value.line or {}) do
    if other.overtaken >= MAX_OVERTAKEN and is_behind(waiter, other) then return true end
  end
  return false
end

local function remove_from_line(value, id)
  for i, other in ipairs(value.line or {}) do
    if other.id == id then
      table.remove(value.line, i)
      if #value.line == 0 then value.line = nil end
      return true
    end
  end
  return false
end

-- A caller is served. The next one of its process takes its place, and has been overtaken as often, if there is one.
local function leave_line(value, waiter)
  for _, other in ipairs(value.line or {}) do
    if other.id == waiter.id then
      other.arrived, other.seen = now - waiter.next_age, now
    elseif is_behind(waiter, other) and other.overtaken < 255 then
      other.overtaken = other.overtaken + 1
    end
  end
  if waiter.next_age < 0 then remove_from_line(value, waiter.id) end
end

-- A caller goes on waiting.
local function join_line(value, waiter)
  local line = value.line or {}
  value.line = line
  for _, other in ipairs(line) do
    if other.id == waiter.id then
      other.arrived, other.seen = waiter.arrived, now
      return
    end
  end
  if #line < MAX_LINE then
    line[#line + 1] = { id = waiter.id, overtaken = 0, seen = now, arrived = waiter.arrived }
  end
end
