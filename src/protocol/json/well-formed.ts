/**
 * Half characters and NUL in request bodies. JSON can contain half of a surrogate pair (`\ud800`), which UTF-8 cannot
 * express, and NUL, which PostgreSQL cannot store. In texts, half characters become U+FFFD, and NUL stays. In names,
 * ids and stored values, both are refused. Pure.
 */
import { GatewayError } from '../../base/errors.ts'
import { elementPath } from './schema.ts'

/** Fields whose text is a name or an id. */
const NAME_FIELDS: ReadonlySet<string> = new Set([
  'call_id',
  'custom_id',
  'id',
  'model',
  'name',
  'namespace',
  'prompt_cache_key',
  'safety_identifier',
  'session_id',
  'tool_call_id',
  'tool_use_id',
  'user',
])
/** Fields whose texts are all stored. */
const STORED_FIELDS: ReadonlySet<string> = new Set(['metadata', 'trace'])
/** Objects whose keys are chosen by the caller: arguments, results and schemas. */
const FOREIGN_OBJECTS: ReadonlySet<string> = new Set([
  'args',
  'arguments',
  'input',
  'input_schema',
  'parameters',
  'parametersJsonSchema',
  'response',
  'responseJsonSchema',
  'responseSchema',
  'schema',
])
/** `text`: unpaired surrogates are replaced, except in names and ids. `stored`: they and NUL are refused everywhere. */
export type TextRule = 'text' | 'stored'
type Rule = TextRule | 'foreign'

interface ObjectPosition {
  readonly value: object
  readonly path: string
  readonly rule: Rule
}

/**
 * Makes the texts of a body well-formed, in place. Returns true if one was not.
 * @throws GatewayError `invalid_request` for a name, an id or a stored text with half a character or NUL
 */
export function repairTexts(root: unknown, textRule: TextRule): boolean {
  if (typeof root !== 'object' || root === null) return false
  let isRepaired = false
  const positions: ObjectPosition[] = [{ value: root, path: '', rule: textRule }]
  for (let position = positions.pop(); position !== undefined; position = positions.pop()) {
    const { value, path, rule } = position
    const fields = value as Record<string, unknown>
    for (const key of Object.keys(value)) {
      const field = fields[key]
      const fieldPath = Array.isArray(value)
        ? elementPath(path, Number(key))
        : path === ''
          ? key
          : `${path}.${key}`
      if (typeof field === 'string') {
        if (rule === 'stored' || (rule === 'text' && NAME_FIELDS.has(key))) refuseBrokenText(field, fieldPath)
        else if (!field.isWellFormed()) {
          fields[key] = field.toWellFormed()
          isRepaired = true
        }
      } else if (typeof field === 'object' && field !== null)
        positions.push({ value: field, path: fieldPath, rule: ruleOf(rule, key, field) })
    }
  }
  return isRepaired
}

function ruleOf(rule: Rule, key: string, field: object): Rule {
  if (rule !== 'text') return rule
  if (STORED_FIELDS.has(key)) return 'stored'
  return FOREIGN_OBJECTS.has(key) && !Array.isArray(field) ? 'foreign' : 'text'
}

function refuseBrokenText(text: string, path: string): void {
  if (text.isWellFormed() && !text.includes('\0')) return
  throw new GatewayError('invalid_request', `${path}: must have no NUL and no half of a surrogate pair`)
}
