/**
 * Field names in both spellings that Google accepts: `systemInstruction` and `system_instruction`. Pure. Hot path: a
 * body in the usual spelling is walked once and not copied.
 */
import { isObject } from '../../protocol/json/schema.ts'

/** The fields of the body itself that are Google's; all others are the gateway's, which have one spelling. */
const GOOGLE_FIELDS: ReadonlySet<string> = new Set([
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
/** Fields whose values stay unchanged: data of the caller, and schemas, which schema.ts reads in both spellings. */
const DATA_FIELDS: ReadonlySet<string> = new Set([
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
const SNAKE_LETTER = /(?<=[a-z0-9])_([a-z0-9])/g

/** The name in its usual spelling. */
export function camelCase(name: string): string {
  return name.includes('_') ? name.replace(SNAKE_LETTER, (_, letter: string) => letter.toUpperCase()) : name
}

/** The body with Google's fields in their usual spelling; the body itself where nothing changes. */
export function inUsualSpelling(body: unknown): unknown {
  return isObject(body) ? respellFields(body, GOOGLE_FIELDS) : body
}

/** A value below the body. Tools with a `type` are the gateway's own and stay unchanged. */
export function respell(value: unknown): unknown {
  if (Array.isArray(value)) return respellList(value)
  return isObject(value) && typeof value['type'] !== 'string' ? respellFields(value, null) : value
}

/** `only`: the fields that change; null: all. */
function respellFields(
  fields: Readonly<Record<string, unknown>>,
  only: ReadonlySet<string> | null,
): Readonly<Record<string, unknown>> {
  let copy: Record<string, unknown> | null = null
  for (const name of Object.keys(fields)) {
    const usualName = camelCase(name)
    if (only?.has(usualName) === false) continue
    const value = DATA_FIELDS.has(usualName) ? fields[name] : respell(fields[name])
    if (usualName === name && value === fields[name]) continue
    copy ??= { ...fields }
    if (usualName !== name) delete copy[name]
    copy[usualName] = value
  }
  return copy ?? fields
}

function respellList(list: readonly unknown[]): readonly unknown[] {
  let copy: unknown[] | null = null
  for (let index = 0; index < list.length; index++) {
    const value = respell(list[index])
    if (value === list[index]) continue
    copy ??= [...list]
    copy[index] = value
  }
  return copy ?? list
}
