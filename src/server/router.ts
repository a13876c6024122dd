/** Finds the operations of a path, below each base path (`/v1`, `/api/v1`). Pure. */
import type { Operation } from '../api/operation.ts'
import { GatewayError } from '../base/errors.ts'

/** Operations without bases of their own are available under both; some clients prepend the longer one. */
const BASE_PATHS = ['/v1', '/api/v1']
/** Covers clients that prepend /v1 to a base URL that ends in it. */
const DOUBLED = /^((?:\/api)?\/v1)(?:\/api)?\/v1(?=\/)/

interface Resource {
  /** The template that these operations share; the label of metrics and logs. */
  readonly template: string
  /** Keyed by method; the operation of GET also answers HEAD. */
  readonly operations: ReadonlyMap<string, Operation>
  /** Value of the `Allow` header. */
  readonly allow: string
  /** The dialect of these operations; null if there is none. */
  readonly dialect: Operation['dialect']
  /** True if a model is called, so that every answer has a generation id. */
  readonly generates: boolean
  /** True if requests have no line in the log. */
  readonly isQuiet: boolean
}

export interface RouteMatch {
  readonly resource: Resource
  /** Undecoded values of the varying segments. */
  readonly params: ReadonlyMap<string, string>
  /** The path from the free parameter on, undecoded; empty without such a parameter. */
  readonly freeText: string
}

export interface Router {
  /** Each once, in the order of the table. */
  readonly resources: readonly Resource[]
  /** The resource for an undecoded path, or null. A trailing slash makes no difference. */
  find(path: string): RouteMatch | null
  /** The dialect of the nearest operation above an undecoded path that has no operation itself. */
  dialectAbove(path: string): Operation['dialect']
}

interface Pattern {
  readonly segments: readonly string[]
  readonly freeParam: string | null
  readonly takesRest: boolean
  readonly resource: Resource
}

const NO_PARAMS: ReadonlyMap<string, string> = new Map()

/**
 * @throws Error if two operations have the same method and path, or if a free parameter is not at the end of its path
 */
export function createRouter(operations: readonly Operation[]): Router {
  const fixed = new Map<string, RouteMatch>()
  const patterns: Pattern[] = []
  const verbs = new Map<string, VerbPattern>()
  const resources: Resource[] = []
  for (const [template, byMethod] of groupByPath(operations)) {
    const resource = resourceOf(template, byMethod)
    const freeParam = freeParamOf(template, byMethod)
    resources.push(resource)
    const [operation] = byMethod.values()
    if (operation?.verb !== undefined) {
      verbs.set(operation.verb, { freeParam, resource })
      continue
    }
    const takesRest = operation?.takesRest === true
    for (const base of basesOf(byMethod)) {
      if (template.includes('{'))
        patterns.push({ segments: `${base}${template}`.split('/'), freeParam, takesRest, resource })
      else fixed.set((base + template).replace(/\/$/, ''), { resource, params: NO_PARAMS, freeText: '' })
    }
  }
  const find = (path: string): RouteMatch | null => {
    const match = fixed.get(path)
    if (match !== undefined) return match
    const verbMatch = findVerb(verbs, path)
    if (verbMatch !== null) return verbMatch
    const segments = path.split('/')
    for (const pattern of patterns) {
      const params = paramsOf(pattern, segments)
      if (params === null) continue
      const freeText = pattern.freeParam === null ? '' : textFrom(segments, pattern)
      return { resource: pattern.resource, params, freeText }
    }
    const undoubled = path.replace(DOUBLED, '$1')
    return undoubled === path ? null : find(undoubled)
  }
  return {
    resources,
    find: path => fixed.get(path) ?? find(path.endsWith('/') ? path.slice(0, -1) : path),
    dialectAbove(path) {
      if (GOOGLE_PATH.test(path)) return fixed.get('/v1beta/models')?.resource.dialect ?? null
      const [, base = '', below = ''] = BELOW_BASE.exec(path.replace(DOUBLED, '$1')) ?? []
      return fixed.get(base + below)?.resource.dialect ?? null
    },
  }
}

/** The base of a path, and the first segment below it. Google's paths have a single base. */
const BELOW_BASE = /^((?:\/api)?\/v1)(\/[^/]*)/
const GOOGLE_PATH = /^\/v1(?:beta|alpha)(?:\/|$)/

/** Versions whose paths may end in a verb; the model keeps its slashes, and `models/` may be missing. */
const VERB_PATH = /^(?:\/api)?\/v1(?:beta|alpha)?\/(?:models\/)?([^:].*):(\w{1,64})$/

interface VerbPattern {
  readonly freeParam: string | null
  readonly resource: Resource
}

function findVerb(verbs: ReadonlyMap<string, VerbPattern>, path: string): RouteMatch | null {
  const pattern = verbs.get(path.slice(path.lastIndexOf(':') + 1))
  if (pattern?.freeParam == null) return null
  const [, model = '', verb = ''] = VERB_PATH.exec(path) ?? []
  if (model === '') return null
  const params = new Map([[pattern.freeParam, model]])
  return { resource: pattern.resource, params, freeText: `${model}:${verb}` }
}

/** All methods of a path must agree. */
function basesOf(byMethod: ReadonlyMap<string, Operation>): readonly string[] {
  const [operation] = byMethod.values()
  return operation?.bases ?? BASE_PATHS
}

/** @throws GatewayError `invalid_request` if an escape is not UTF-8 */
export function decodeParams(params: ReadonlyMap<string, string>): ReadonlyMap<string, string> {
  const decoded = new Map<string, string>()
  for (const [name, value] of params) {
    try {
      decoded.set(name, decodeURIComponent(value))
    } catch {
      throw new GatewayError('invalid_request', 'Invalid escape in the request path')
    }
  }
  return decoded
}

function groupByPath(operations: readonly Operation[]): Map<string, Map<string, Operation>> {
  const groups = new Map<string, Map<string, Operation>>()
  for (const operation of operations) {
    const { method, path } = operation
    const group = groups.get(path) ?? new Map<string, Operation>()
    if (group.has(method)) throw new Error(`two operations for ${method} ${path}`)
    groups.set(path, group.set(method, operation))
  }
  return groups
}

function resourceOf(template: string, byMethod: ReadonlyMap<string, Operation>): Resource {
  const operations = new Map<string, Operation>()
  for (const [method, operation] of byMethod) {
    operations.set(method, operation)
    if (method === 'GET') operations.set('HEAD', operation)
  }
  const inference = [...byMethod.values()].find(operation => operation.dialect !== null)
  const dialect = inference?.dialect ?? null
  const allow = [...operations.keys(), 'OPTIONS'].join(', ')
  const generates = dialect !== null && inference?.generates !== false
  const isQuiet = [...byMethod.values()].every(operation => operation.isQuiet === true)
  return { template, operations, allow, dialect, generates, isQuiet }
}

/** The path from the free parameter on: the parameter itself, or `/action` too. */
function textFrom(path: readonly string[], { segments, freeParam }: Pattern): string {
  const index = segments.indexOf(`{${freeParam}}`)
  return path.slice(index).join('/')
}

const ACTION = /\/[a-z]+$/

/** All methods of a path must agree, because the gate checks the path before the method. */
function freeParamOf(template: string, byMethod: ReadonlyMap<string, Operation>): string | null {
  const names = new Set([...byMethod.values()].map(operation => operation.freeParam ?? null))
  const [name = null] = names
  const [operation] = byMethod.values()
  const end = operation?.verb === undefined ? '' : `:${operation.verb}`
  const isEnd = template.replace(ACTION, '').endsWith(`/{${name}}${end}`)
  if (names.size > 1 || (name !== null && !isEnd)) {
    throw new Error(
      `the free parameter of ${template} must be its end, for every method, or before an action`,
    )
  }
  return name
}

function paramsOf(
  { segments: pattern, takesRest }: Pattern,
  segments: readonly string[],
): ReadonlyMap<string, string> | null {
  if (takesRest ? pattern.length > segments.length : pattern.length !== segments.length) return null
  const params = new Map<string, string>()
  for (const [index, part] of pattern.entries()) {
    const isRest = takesRest && index === pattern.length - 1
    const segment = isRest ? segments.slice(index).join('/') : (segments[index] ?? '')
    if (!part.startsWith('{')) {
      if (part !== segment) return null
    } else if (segment === '') return null
    else params.set(part.slice(1, -1), segment)
  }
  return params
}
