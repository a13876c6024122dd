/**
 * The `filters` of a file search: comparisons of file attributes, and groups of them. Checked in the serve thread,
 * evaluated in the task worker. Plain data, pure.
 */
import { recordOrEmpty } from '../../base/json.ts'
import type { FileRecord } from '../../storage/files.ts'

const COMPARISONS = ['eq', 'ne', 'gt', 'gte', 'lt', 'lte', 'in', 'nin'] as const
type Value = string | number

export type AttributeFilter =
  | { readonly type: 'and' | 'or'; readonly filters: readonly AttributeFilter[] }
  | {
      readonly type: (typeof COMPARISONS)[number]
      readonly key: AttributeName
      readonly values: readonly Value[]
    }

/** The attributes of files. Times are Unix seconds. */
const ATTRIBUTES = {
  file_id: file => file.id,
  filename: file => file.filename,
  purpose: file => file.purpose,
  media_type: file => file.mediaType ?? '',
  bytes: file => file.bytes,
  created_at: file => Math.floor(Date.parse(file.createdAt) / 1000),
} satisfies Readonly<Record<string, (file: FileRecord) => Value>>
type AttributeName = keyof typeof ATTRIBUTES

const NUMBER_ATTRIBUTES: ReadonlySet<AttributeName> = new Set(['bytes', 'created_at'])
const MAX_DEPTH = 8
const MAX_FILTERS = 100
const MAX_VALUES = 100

/** The filter of a request. `refuse` gets the path of the invalid part, for example `.filters[1].key`. */
export function attributeFilter(
  filter: unknown,
  refuse: (member: string, reason: string) => never,
): AttributeFilter {
  let remaining = MAX_FILTERS
  const read = (value: unknown, path: string, depth: number): AttributeFilter => {
    if (--remaining < 0 || depth > MAX_DEPTH)
      return refuse(path, `must have at most ${MAX_FILTERS} parts, nested at most ${MAX_DEPTH} deep`)
    const fields = recordOrEmpty(value)
    const { type, key } = fields
    if (type === 'and' || type === 'or') {
      const { filters } = fields
      if (!Array.isArray(filters) || filters.length === 0)
        return refuse(`${path}.filters`, 'must have at least one filter')
      return {
        type,
        filters: filters.map((inner: unknown, index) => read(inner, `${path}.filters[${index}]`, depth + 1)),
      }
    }
    const comparison = COMPARISONS.find(candidate => candidate === type)
    if (comparison === undefined)
      return refuse(`${path}.type`, `must be one of ${COMPARISONS.join(', ')}, and, or`)
    if (!isAttribute(key))
      return refuse(`${path}.key`, `must be one of ${Object.keys(ATTRIBUTES).join(', ')}`)
    const isList = comparison === 'in' || comparison === 'nin'
    const values: unknown = isList ? fields['value'] : [fields['value']]
    const kind = NUMBER_ATTRIBUTES.has(key) ? 'number' : 'string'
    if (
      !Array.isArray(values) ||
      values.length > MAX_VALUES ||
      values.some(element => typeof element !== kind)
    )
      return refuse(
        `${path}.value`,
        isList ? `must be a list of 0 to ${MAX_VALUES} ${kind}s` : `must be a ${kind}`,
      )
    return { type: comparison, key, values: values as Value[] }
  }
  return read(filter, '', 1)
}

function isAttribute(key: unknown): key is AttributeName {
  return typeof key === 'string' && Object.hasOwn(ATTRIBUTES, key)
}

/** True if the file matches the filter. Texts are compared exactly, including case. */
export function hasAttributes(filter: AttributeFilter, file: FileRecord): boolean {
  switch (filter.type) {
    case 'and':
      return filter.filters.every(inner => hasAttributes(inner, file))
    case 'or':
      return filter.filters.some(inner => hasAttributes(inner, file))
    default:
      return matches(filter.type, ATTRIBUTES[filter.key](file), filter.values)
  }
}

function matches(type: (typeof COMPARISONS)[number], actual: Value, values: readonly Value[]): boolean {
  const [value = ''] = values
  switch (type) {
    case 'eq':
    case 'in':
      return values.includes(actual)
    case 'ne':
    case 'nin':
      return !values.includes(actual)
    case 'gt':
      return actual > value
    case 'gte':
      return actual >= value
    case 'lt':
      return actual < value
    case 'lte':
      return actual <= value
  }
}
