/**
 * Field names in both spellings that Google accepts: `systemInstruction` and `system_instruction`. Pure. Hot path: a
 * body in the usual spelling is walked once and not copied.
 */
import { isObject } from '../../protocol/json/schema.ts'

/** The fields of the body itself that are Google's; all others are the gateway's, which have one spelling. */
const OF_BODY: ReadonlySet<string> = new Set([
  'contents',
  'systemInstruction',
  'generationConfig',
  'tools',
  'toolConfig',
  'safetySettings',
  'cachedContent',
  'serviceTier',
  'generateContentRequest',
])
/** Below these, names are data of the caller, or a schema, which is read in both spellings elsewhere. */
const DATA: ReadonlySet<string> = new Set([
  'args',
  'response',
  'responseSchema',
  'responseJsonSchema',
  '_responseJsonSchema',
  'parameters',
  'parametersJsonSchema',
  'partMetadata',
  'labels',
])
const SNAKE = /(?<=[a-z0-9])_([a-z0-9])/g

/** The name in its usual spelling. */
export function camel(name: string): string {
  return name.includes('_') ? name.replace(SNAKE, (_, letter: string) => letter.toUpperCase()) : name
}

/** The body with Google's fields in their usual spelling; the body itself where nothing changes. */
export function inUsualSpelling(body: unknown): unknown {
  if (!isObject(body)) return body
  let copy: Record<string, unknown> | null = null
  for (const name of Object.keys(body)) {
    const usual = camel(name)
    if (!OF_BODY.has(usual)) continue
    const value = respell(body[name])
    if (usual === name && value === body[name]) continue
    copy ??= { ...body }
    if (usual !== name) delete copy[name]
    copy[usual] = value
  }
  return copy ?? body
}

/** A value below the body. Tools with a `type` are the gateway's own and stay unchanged. */
export function respell(value: unknown): unknown {
  if (Array.isArray(value)) return spelledList(value)
  if (!isObject(value) || typeof value['type'] === 'string') return value
  let copy: Record<string, unknown> | null = null
  for (const name of Object.keys(value)) {
    const usual = camel(name)
    const inner = DATA.has(usual) ? value[name] : respell(value[name])
    if (usual === name && inner === value[name]) continue
    copy ??= { ...value }
    if (usual !== name) delete copy[name]
    copy[usual] = inner
  }
  return copy ?? value
}

function spelledList(list: readonly unknown[]): readonly unknown[] {
  let copy: unknown[] | null = null
  for (let at = 0; at < list.length; at++) {
    const value = respell(list[at])
    if (value === list[at]) continue
    copy ??= [...list]
    copy[at] = value
  }
  return copy ?? list
}
