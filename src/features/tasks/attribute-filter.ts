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

const NUMBERS: ReadonlySet<AttributeName> = new Set(['bytes', 'created_at'])
const DEPTH_MAX = 8
const FILTERS_MAX = 100
const VALUES_MAX = 100

/** The filter of a request. `refuse` gets the path of the invalid part, for example `.filters[1].key`. */
export function attributeFilter(
  filter: unknown,
  refuse: (member: string, why: string) => never,
): AttributeFilter {
  let remaining = FILTERS_MAX
  const read = (value: unknown, at: string, depth: number): AttributeFilter => {
    if (--remaining < 0 || depth > DEPTH_MAX)
      return refuse(at, `must have at most ${FILTERS_MAX} parts, nested at most ${DEPTH_MAX} deep`)
    const fields = recordOrEmpty(value)
    const { type, key } = fields
    if (type === 'and' || type === 'or') {
      const { filters } = fields
      if (!Array.isArray(filters) || filters.length === 0)
        return refuse(`${at}.filters`, 'must have at least one filter')
      return {
        type,
        filters: filters.map((each: unknown, index) => read(each, `${at}.filters[${index}]`, depth + 1)),
      }
    }
    const comparison = COMPARISONS.find(each => each === type)
    if (comparison === undefined)
      return refuse(`${at}.type`, `must be one of ${COMPARISONS.join(', ')}, and, or`)
    if (!isAttribute(key)) return refuse(`${at}.key`, `must be one of ${Object.keys(ATTRIBUTES).join(', ')}`)
    const isList = comparison === 'in' || comparison === 'nin'
    const values: unknown = isList ? fields['value'] : [fields['value']]
    const kind = NUMBERS.has(key) ? 'number' : 'string'
    if (!Array.isArray(values) || values.length > VALUES_MAX || values.some(each => typeof each !== kind))
      return refuse(
        `${at}.value`,
        isList ? `must be a list of 0 to ${VALUES_MAX} ${kind}s` : `must be a ${kind}`,
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
      return filter.filters.every(each => hasAttributes(each, file))
    case 'or':
      return filter.filters.some(each => hasAttributes(each, file))
    default:
      return compares(filter.type, ATTRIBUTES[filter.key](file), filter.values)
  }
}

function compares(type: (typeof COMPARISONS)[number], actual: Value, values: readonly Value[]): boolean {
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
