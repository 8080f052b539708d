-- Wireshark and tshark: BCCN datagrams (bccnd/wire/BCCN1.md, "Envelope", "Body"), by port, or by how they begin on any
-- other.
--
--   tshark -X lua_script:etc/bccn.lua -r capture.pcap
--   cp etc/bccn.lua ~/.local/lib/wireshark/plugins/          for good; "About", "Folders" tells where yours are
--
-- Filters: bccn.chan == "orders/new", bccn.src contains "relay01/", bccn.mode == "directed", bccn.malformed.
-- What is flagged as malformed is what a daemon drops. An hmac is shown, not verified: that takes the key.

local bccn = Proto("bccn", "BCCN")

local field = {
    magic = ProtoField.string("bccn.magic", "Magic"),
    length = ProtoField.uint32("bccn.len", "Length of the body"),
    algorithm = ProtoField.string("bccn.algo", "Integrity"),
    sum = ProtoField.string("bccn.sum", "Value"),
    source = ProtoField.string("bccn.src", "Source"),
    sequence = ProtoField.uint64("bccn.seq", "Sequence number"),
    channel = ProtoField.string("bccn.chan", "Channel"),
    mode = ProtoField.string("bccn.mode", "Mode"),
    payload = ProtoField.bytes("bccn.payload", "Payload"),
    text = ProtoField.string("bccn.text", "Payload as text"),
}
for _, each in pairs(field) do
    table.insert(bccn.fields, each)
end

local malformed = ProtoExpert.new("bccn.malformed", "Not a sound BCCN datagram", expert.group.MALFORMED, expert.severity.ERROR)
local wrong_sum = ProtoExpert.new("bccn.wrong_sum", "Check value is wrong", expert.group.CHECKSUM, expert.severity.ERROR)
local other_version = ProtoExpert.new(
    "bccn.version", "Not BCCN1: only the envelope is known", expert.group.PROTOCOL, expert.severity.NOTE
)
bccn.experts = { malformed, wrong_sum, other_version }

bccn.prefs.port = Pref.uint("UDP port", 5400, "of the segment")

local ENVELOPE_LIMIT = 64 -- bytes in which the "]" must be: magic of 16, length of 5, algorithm and value
local SEQUENCE_LIMIT = "18446744073709551615"
local SUM_DIGITS = { hmac = 16, crc32 = 8 }

local crc_table = {}
for byte = 0, 255 do
    local value = byte
    for _ = 1, 8 do
        value = bit32.bxor(bit32.rshift(value, 1), bit32.band(value, 1) == 1 and 0xEDB88320 or 0)
    end
    crc_table[byte] = value
end

local function crc32(bytes)
    local value = 0xFFFFFFFF
    for at = 1, #bytes do
        value = bit32.bxor(bit32.rshift(value, 8), crc_table[bit32.band(bit32.bxor(value, bytes:byte(at)), 0xFF)])
    end
    return string.format("%08x", bit32.bnot(value))
end

-- 1 to 20 digits, and below 2^64
local function is_sequence(text)
    if not text:match("^%d+$") or #text > 20 then
        return false
    end
    local digits = text:gsub("^0+", "")
    return #digits < 20 or digits <= SEQUENCE_LIMIT
end

-- Lua's own numbers are doubles.
local function number_of(digits)
    local value = UInt64.new(0)
    for digit in digits:gmatch("%d") do
        value = value * 10 + UInt64.new(tonumber(digit))
    end
    return value
end

-- ASCII without white space, NUL, ":" and "|"
local function is_name(text, limit)
    return #text >= 1 and #text <= limit and not text:find("[\0\9-\13 :|\128-\255]")
end

-- The parts of the envelope, as a table, or nil and what is wrong.
local function envelope_of(bytes)
    local magic, inside, body = bytes:match("^(BCCN%d+%a*)%[([^%]]*)%]()")
    if not magic or #magic > 16 or body > ENVELOPE_LIMIT then
        return nil, "no envelope"
    end
    local length, check = inside:match("^(%d+)$"), nil
    local algorithm, sum
    if not length then
        length, check = inside:match("^(%d+):(.*)$")
        algorithm, sum = (check or ""):match("^([^=]+)=(.*)$")
        if not algorithm then
            return nil, "the envelope is broken"
        end
    end
    if #length > 5 then
        return nil, "the envelope is broken"
    end
    return { magic = magic, length = length, algorithm = algorithm, sum = sum, body = body }
end

local function fault_of_sum(envelope, body)
    local digits = SUM_DIGITS[envelope.algorithm]
    if not digits then
        return "integrity algorithm unknown"
    elseif #envelope.sum ~= digits or envelope.sum:find("[^0-9a-f]") then
        return "the check value has the wrong form"
    elseif envelope.algorithm == "crc32" and envelope.sum ~= crc32(body) then
        return "wrong"
    end
end

local function mode_of(channel)
    if channel == "!" then
        return "all"
    end
    return channel:sub(1, 1) == "!" and "directed" or "plain"
end

local function show_body(tree, tvb, at, body, info)
    local header = body:match("^([^|]*)|")
    local source, sequence, channel = (header or ""):match("^([^:]*):([^:]*):([^:]*)$")
    if not source then
        return "no source:number:channel| in the body"
    end
    tree:add(field.source, tvb(at, #source), source)
    local number = tvb(at + #source + 1, #sequence)
    if is_sequence(sequence) then
        tree:add(field.sequence, number, number_of(sequence))
    end
    tree:add(field.channel, tvb(at + #source + #sequence + 2, #channel), channel)
    tree:add(field.mode, tvb(at + #source + #sequence + 2, #channel), mode_of(channel)):set_generated()
    local payload = body:sub(#header + 2)
    if #payload > 0 then
        local range = tvb(at + #header + 1, #payload)
        tree:add(field.payload, range)
        if not payload:find("[^%g ]") then
            tree:add(field.text, range, payload):set_generated()
        end
    end
    info:append(string.format(" %s #%s %s, %d byte%s", source, sequence, channel, #payload, #payload == 1 and "" or "s"))
    if not is_name(source, 128) then
        return "not a source"
    elseif not is_sequence(sequence) then
        return "not a sequence number"
    elseif not is_name(channel, 1024) then
        return "not a channel"
    elseif channel:sub(1, 2) == "!?" then
        return 'directed to "?", which is nobody'
    end
end

function bccn.dissector(tvb, pinfo, tree)
    local bytes = tvb:raw()
    if bytes:sub(1, 4) ~= "BCCN" then
        return 0
    end
    pinfo.cols.protocol = "BCCN"
    pinfo.cols.info = ""
    local shown = tree:add(bccn, tvb())
    local function flag(what)
        shown:add_proto_expert_info(malformed, "Malformed: " .. what)
        pinfo.cols.info:append(" [malformed: " .. what .. "]")
    end

    local envelope, fault = envelope_of(bytes)
    if not envelope then
        flag(fault)
        return tvb:len()
    end
    pinfo.cols.info:append(envelope.magic)
    shown:add(field.magic, tvb(0, #envelope.magic), envelope.magic)
    local at = envelope.body - 1
    local inside = tvb(#envelope.magic + 1, at - #envelope.magic - 2)
    shown:add(field.length, inside, tonumber(envelope.length))
    local body = bytes:sub(envelope.body)
    if envelope.algorithm then
        shown:add(field.algorithm, inside, envelope.algorithm)
        shown:add(field.sum, inside, envelope.sum)
    end
    if tonumber(envelope.length) ~= #body then
        flag(string.format("says %s bytes, %d are there", envelope.length, #body))
        return tvb:len()
    end
    if envelope.algorithm then
        fault = fault_of_sum(envelope, body)
        if fault == "wrong" then
            shown:add_proto_expert_info(wrong_sum)
            pinfo.cols.info:append(" [" .. envelope.algorithm .. " wrong]")
        elseif fault then
            flag(fault)
        end
    end
    if envelope.magic ~= "BCCN1" then
        shown:add_proto_expert_info(other_version)
        pinfo.cols.info:append(string.format(", %d bytes", #body))
        return tvb:len()
    end
    fault = show_body(shown, tvb, at, body, pinfo.cols.info)
    if fault then
        flag(fault)
    end
    return tvb:len()
end

local ports, registered = DissectorTable.get("udp.port"), nil
local function register()
    if registered then
        ports:remove(registered, bccn)
    end
    registered = bccn.prefs.port
    ports:add(registered, bccn)
end
bccn.prefs_changed = register
register()

bccn:register_heuristic("udp", function(tvb, pinfo, tree)
    if tvb:len() < 8 or not tvb:raw(0, math.min(tvb:len(), 32)):find("^BCCN%d+%a*%[%d") then
        return false
    end
    bccn.dissector(tvb, pinfo, tree)
    return true
end)
