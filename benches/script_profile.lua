-- Runs the Redis script with a captured batch, and counts the instructions of the Lua machine by the functions of the script:
-- `script_profile.py` has the usage. Redis is a table here, and the library `struct` is written in Lua, which is not counted.
local script_path, batch_path = arg[1], arg[2]
local counting = false

-- Runs a function of ours without counting it.
local function uncounted(run)
  return function(...)
    local was = counting
    counting = false
    local results = { run(...) }
    counting = was
    return unpack(results)
  end
end

local function pack_double(number)
  if number == 0 then return string.rep('\0', 8) end
  local sign = number < 0 and 128 or 0
  local mantissa, exponent = math.frexp(math.abs(number))
  mantissa, exponent = (mantissa * 2 - 1) * 2 ^ 52, exponent + 1022
  local bytes = {}
  for i = 1, 6 do bytes[i], mantissa = mantissa % 256, math.floor(mantissa / 256) end
  bytes[7], bytes[8] = exponent % 16 * 16 + mantissa, sign + math.floor(exponent / 16)
  return string.char(unpack(bytes))
end

local function unpack_double(text, at)
  local bytes = { text:byte(at, at + 7) }
  local exponent, mantissa = bytes[8] % 128 * 16 + math.floor(bytes[7] / 16), bytes[7] % 16
  for i = 6, 1, -1 do mantissa = mantissa * 256 + bytes[i] end
  if exponent == 0 and mantissa == 0 then return 0 end
  return (bytes[8] > 127 and -1 or 1) * math.ldexp(1 + mantissa / 2 ^ 52, exponent - 1023)
end

local function pack_integer(number, width)
  local bytes = {}
  for i = 1, width do bytes[i], number = string.char(number % 256), math.floor(number / 256) end
  return table.concat(bytes)
end

local function unpack_integer(text, at, width)
  local number = 0
  for i = width, 1, -1 do number = number * 256 + text:byte(at + i - 1) end
  return number
end

local WIDTH = { B = 1, H = 2 }

local struct = {}
struct.pack = uncounted(function(format, ...)
  local given, next_one, parts = { ... }, 1, {}
  for letter, width in format:gmatch('([%a])(%d*)') do
    local value = given[next_one]
    if letter == 'x' then
      value, next_one = '\0', next_one - 1
    elseif letter == 'd' then
      value = pack_double(value)
    elseif letter == 'c' then
      if width ~= '0' and width ~= '' then value = value:sub(1, tonumber(width)) end
    else
      value = pack_integer(value, WIDTH[letter] or tonumber(width) or 4)
    end
    parts[#parts + 1], next_one = value, next_one + 1
  end
  return table.concat(parts)
end)
struct.unpack = uncounted(function(format, text, at)
  local found = {}
  at = at or 1
  for letter, width in format:gmatch('([%a])(%d*)') do
    if letter == 'x' then
      at = at + 1
    elseif letter == 'd' then
      found[#found + 1], at = unpack_double(text, at), at + 8
    elseif letter == 'c' then
      -- The length of a `c0` is the number before it.
      local length = width == '0' and table.remove(found) or tonumber(width) or 1
      found[#found + 1], at = text:sub(at, at + length - 1), at + length
    else
      local bytes = WIDTH[letter] or tonumber(width) or 4
      found[#found + 1], at = unpack_integer(text, at, bytes), at + bytes
    end
  end
  found[#found + 1] = at
  return unpack(found)
end)

local stored, now = {}, 1800000000
local redis = {}
function redis.call(command, key, value)
  if command == 'TIME' then
    now = now + 1
    return { tostring(now), '000000' }
  elseif command == 'GET' then
    return stored[key] or false
  elseif command == 'SET' then
    stored[key] = value
    return { ok = 'OK' }
  elseif command == 'DEL' then
    stored[key] = nil
    return 1
  end
  error('the profile has no ' .. command)
end
redis.call = uncounted(redis.call)
redis.pcall = redis.call

local source = io.open(script_path):read('*a')
local script, batch = assert(loadstring(source, '@script')), dofile(batch_path)
setfenv(script, setmetatable({ redis = redis, struct = struct, KEYS = batch.keys, ARGV = batch.arguments }, { __index = _G }))

local function run()
  local reply = script()
  assert(type(reply) == 'table' and not reply.err, 'the script has failed')
  for i, item in ipairs(reply) do assert(type(item) == 'string', 'entry ' .. i .. ' has failed') end
  return #reply - 1
end

local by_function = {}
-- The first run makes the keys.
run()
debug.sethook(function()
  if not counting then return end
  local at = debug.getinfo(2, 'S')
  if at.source == '@script' then by_function[at.linedefined] = (by_function[at.linedefined] or 0) + 1 end
end, '', 1)
counting = true
local entries = run()
counting = false
debug.sethook()

-- A function has the name that the line of its definition has. The main part of the script begins at line 0.
local names, number = { [0] = 'the head, the loops for checks and the main part' }, 0
for line in (source .. '\n'):gmatch('(.-)\n') do
  number = number + 1
  names[number] = line:match('function ([%w_:%.]+)%(') or line
end
local counts, total = {}, 0
for line, count in pairs(by_function) do
  counts[names[line]], total = (counts[names[line]] or 0) + count, total + count
end
local sorted = {}
for name, count in pairs(counts) do sorted[#sorted + 1] = { name = name, count = count } end
table.sort(sorted, function(one, other) return one.count > other.count end)
print(string.format('%d entries, %.0f instructions each', entries, total / entries))
for i = 1, math.min(20, #sorted) do print(string.format('%8.1f  %s', sorted[i].count / entries, sorted[i].name)) end
