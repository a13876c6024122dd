/** Random changes to JSON and bytes, the same ones for the same seed. */

/** A number below a bound: the next of a sequence. */
export type Pick = (below: number) => number

export function numbersFrom(seed: number): Pick {
  let state = seed >>> 0
  return below => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return Math.floor((state / 2 ** 32) * below)
  }
}

/** Values that no field expects. */
const ODD_VALUES: readonly unknown[] = [
  ...[null, true, false, 0, -1, 1.5, 1e308, -1e308, 2 ** 53, 1e-320],
  ...['', ' ', '\u0000', '\ud800', '\r\nset-cookie: x=1', '__proto__', 'x'.repeat(5_000), '1', 'NaN', '[]'],
  ...[[], [null], [[]], [{}], {}, { type: 'message' }, { type: null }, { text: [] }, { index: -1 }],
]

/** Types of items, parts and events that a `type` may take from another one. */
const TYPES = [
  ...[
    'message',
    'reasoning',
    'function_call',
    'web_search_call',
    'custom_tool_call',
    'output_text',
    'refusal',
  ],
  ...[
    'text',
    'tool_use',
    'tool_result',
    'thinking',
    'text_delta',
    'input_json_delta',
    'server_tool_use',
    'error',
  ],
]

/** A copy, which later changes cannot join to a circle. */
function oddValue(pick: Pick): unknown {
  return structuredClone(ODD_VALUES[pick(ODD_VALUES.length)])
}

type Holder = Record<string, unknown> | unknown[]

/** All objects and arrays of a document. */
function holdersIn(value: unknown, found: Holder[] = []): Holder[] {
  if (typeof value !== 'object' || value === null) return found
  found.push(value as Holder)
  for (const member of Object.values(value)) holdersIn(member, found)
  return found
}

/** The document with one to three members changed, removed, renamed, repeated or moved. */
export function mutatedJson(document: unknown, pick: Pick): unknown {
  const copy = structuredClone(document)
  for (let left = 1 + pick(3); left > 0; left--) {
    const holders = holdersIn(copy)
    const holder = holders[pick(holders.length)]
    if (holder === undefined) return copy
    const names = Object.keys(holder)
    const name = names[pick(names.length)]
    if (name === undefined) continue
    const fields = holder as Record<string, unknown>
    const value = fields[name]
    switch (pick(8)) {
      case 0:
        if (Array.isArray(holder)) holder.splice(Number(name), 1)
        else delete fields[name]
        break
      case 1:
        if (Array.isArray(holder)) holder.push(structuredClone(value))
        else fields[`${name}_`] = structuredClone(value)
        break
      case 2:
        fields[name] = structuredClone(holders[pick(holders.length)])
        break
      case 3:
      case 4:
        if (typeof fields['type'] === 'string') fields['type'] = TYPES[pick(TYPES.length)]
        else fields[name] = oddValue(pick)
        break
      default:
        fields[name] = oddValue(pick)
    }
  }
  return copy
}

/** The bytes with some bits changed. */
export function flippedBits(bytes: Buffer, pick: Pick): Buffer {
  const copy = Buffer.from(bytes)
  for (let left = 1 + pick(8); left > 0 && copy.length > 0; left--) {
    const at = pick(copy.length)
    copy[at] = (copy[at] ?? 0) ^ (1 << pick(8))
  }
  return copy
}

/** The beginning of the bytes. */
export function cutOff(bytes: Buffer, pick: Pick): Buffer {
  return bytes.subarray(0, pick(bytes.length + 1))
}
