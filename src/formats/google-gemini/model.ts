/**
 * What the name of a Gemini model decides: the path it is called at and the settings of thinking it knows. Pure.
 * Generations differ in their API, and the name is all that tells them apart; what differs is rows here.
 */
import { inexpressible } from '../inexpressible.ts'

/** First segments of full resource names, which an operator may configure instead of the plain model name. */
const RESOURCE_ROOTS: ReadonlySet<string> = new Set([
  'models',
  'tunedModels',
  'publishers',
  'projects',
  'endpoints',
])

/**
 * The path of a model: `/models/<name>`, or the resource name itself where one is configured
 * (`models/x`, `publishers/google/models/x`, `projects/p/locations/l/endpoints/7`). Whatever the name holds stays
 * inside its segments: everything but unreserved characters and `@` is percent-encoded, and a slash separates
 * only in resource names.
 * @throws GatewayError `unprocessable` for empty and dot segments, control characters and backslashes: servers
 *   between us and the model may resolve them.
 */
export function modelPath(name: string): string {
  const segments = name.split('/')
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is refused here
  const odd = /[\u0000-\u001f\u007f\\]/.test(name) || !name.isWellFormed()
  if (odd || segments.some(segment => segment === '' || /^(?:\.|%2e){1,2}$/i.test(segment))) {
    throw inexpressible('model', 'the name cannot be part of an address')
  }
  const resource = segments.length > 1 && RESOURCE_ROOTS.has(segments[0] ?? '')
  const parts = resource ? segments : [name]
  const path = parts.map(part => encodeURIComponent(part).replaceAll('%40', '@')).join('/')
  return resource ? `/${path}` : `/models/${path}`
}

export type ThinkingLevel = 'MINIMAL' | 'LOW' | 'MEDIUM' | 'HIGH'

/** How a model's thinking is set: by a level out of a list, or by a budget in tokens. */
export type Thinking =
  | { readonly by: 'level'; readonly levels: readonly ThinkingLevel[] }
  | { readonly by: 'budget'; readonly minTokens: number; readonly maxTokens: number }

const THINKING: readonly (readonly [RegExp, Thinking])[] = [
  [/gemini-3-pro/, { by: 'level', levels: ['LOW', 'HIGH'] }],
  [/gemini-(?:[3-9]|\d\d)(?:\.\d+)?-pro/, { by: 'level', levels: ['LOW', 'MEDIUM', 'HIGH'] }],
  [/gemini-(?:[3-9]|\d\d)(?:[.-]|$)/, { by: 'level', levels: ['MINIMAL', 'LOW', 'MEDIUM', 'HIGH'] }],
  [/gemini-2\.5-pro/, { by: 'budget', minTokens: 128, maxTokens: 32_768 }],
  [/gemini-2\.5-flash-lite/, { by: 'budget', minTokens: 512, maxTokens: 24_576 }],
]

/** Later generations take budgets too, so a budget is the safe setting for a name that says nothing. */
const BUDGET: Thinking = { by: 'budget', minTokens: 0, maxTokens: 24_576 }

export function thinkingOf(model: string): Thinking {
  return THINKING.find(([pattern]) => pattern.test(model))?.[1] ?? BUDGET
}

/**
 * Whether the model demands signatures on function calls, and lets its own tools run beside functions when
 * asked: both came with the generation that is set by levels.
 */
export function isSigning(model: string): boolean {
  return thinkingOf(model).by === 'level'
}
