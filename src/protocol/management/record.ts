/**
 * Records that are stored and served, each declared once: field by field its type, its column, and its places in bodies
 * and answers. Types of records, rows and bodies follow from the declaration, and so do the functions between them.
 * Pure.
 */
import {
  type Static,
  type TObject,
  type TOptional,
  type TProperties,
  type TSchema,
  Type,
} from '@sinclair/typebox'

/** A stored form that both databases have: 0 or 1, 64 bits, JSON text. */
type ColumnForm = 'flag' | 'big' | 'json'

/** The field that is read, and the time, for functions that read values. */
export interface ReadingContext {
  /** The field, as errors name it. */
  readonly field: string
  readonly nowMs: number
}

export interface Field {
  /** The field in answers; the record has the same type unless `type` is set. */
  readonly schema: TSchema
  /** Its type in the record, if that differs. */
  readonly type?: TSchema
  /** `stored`: clients do not see it. `answer`: it is computed for each answer. `body`: only bodies have it. */
  readonly only?: 'stored' | 'answer' | 'body'
  /** Absent: stored unchanged. */
  readonly column?: ColumnForm
  /** The JSON column that it shares with other fields. They are written together. */
  readonly inside?: string
  /** The name of its column, if that differs. */
  readonly as?: string
  /** The value in every answer. */
  readonly fixed?: unknown
  /** Its name for clients, if that is not its name in snake case. */
  readonly wire?: string
  /** Its schema in bodies that create a record. */
  readonly create?: TSchema
  /** Its schema in bodies that change a record, where every field may be missing. */
  readonly change?: TSchema
  /** The value of a new record whose body has none; null in a body sets it too. */
  readonly initial?: unknown
  /** Reads a value of a body. @throws GatewayError `invalid_request` */
  readonly read?: (value: never, context: ReadingContext) => unknown
  /** The value for clients, if that differs. */
  readonly write?: (value: never) => unknown
}

export type Fields = Readonly<Record<string, Field>>

type Snake<Name extends string> = Name extends `${infer First}${infer Rest}`
  ? `${First extends Lowercase<First> ? First : `_${Lowercase<First>}`}${Snake<Rest>}`
  : Name
type Wire<Name, Of extends Field> = Of extends { readonly wire: infer Given extends string }
  ? Given
  : Snake<Name & string>
type Fixed<Value> = Value extends readonly (infer Item)[] ? readonly Item[] : Value
/** The type of a field in its record. */
type ValueOf<Of extends Field> = Fixed<
  Static<Of extends { readonly type: infer Type extends TSchema } ? Type : Of['schema']>
>
type NotStored = { readonly only: 'answer' | 'body' }

/** A record in the form of the code. */
export type RecordOf<Of extends Fields> = {
  readonly [Name in keyof Of as Of[Name] extends NotStored ? never : Name]: ValueOf<Of[Name]>
}

/** 64 bits, which PostgreSQL returns as text. Values of single rows are safe integers. */
export type BigInteger = number | string | bigint
type Cell<Of extends Field> = Of extends { readonly inside: string }
  ? string
  : Of extends { readonly column: infer Form extends ColumnForm }
    ? (Form extends 'flag' ? number : Form extends 'big' ? BigInteger : string) | Extract<ValueOf<Of>, null>
    : ValueOf<Of>

/** A record in the form of its table. */
export type RowOf<Of extends Fields> = {
  [Name in keyof Of as Of[Name] extends NotStored
    ? never
    : Of[Name] extends
          | { readonly as: infer Column extends string }
          | { readonly inside: infer Column extends string }
      ? Column
      : Name]: Cell<Of[Name]>
}

type BodyOf<Properties> = Properties extends TProperties ? TObject<Properties> : never
type CreationOf<Of extends Fields> = {
  [Name in keyof Of as Of[Name] extends { readonly create: TSchema }
    ? Wire<Name, Of[Name]>
    : never]: Of[Name] extends { readonly create: infer Schema extends TSchema } ? Schema : never
}
type ChangeBodyOf<Of extends Fields> = {
  [Name in keyof Of as Of[Name] extends { readonly change: TSchema }
    ? Wire<Name, Of[Name]>
    : never]: Of[Name] extends { readonly change: infer Schema extends TSchema } ? TOptional<Schema> : never
}
type InitialOf<Of extends Fields> = {
  readonly [Name in keyof Of as Of[Name] extends { readonly initial: unknown } ? Name : never]: ValueOf<
    Of[Name]
  >
}
type NewOf<Of extends Fields> = {
  readonly [Name in keyof Of as Of[Name] extends NotStored
    ? never
    : Of[Name] extends { readonly initial: unknown } | { readonly create: TSchema }
      ? Name
      : never]: ValueOf<Of[Name]>
}
/** Changes of a record; absent fields stay. */
export type ChangeOf<Of extends Fields> = {
  readonly [Name in keyof Of as Of[Name] extends NotStored
    ? never
    : Of[Name] extends { readonly change: TSchema }
      ? Name
      : never]?: ValueOf<Of[Name]>
}

type Values = Readonly<Record<string, unknown>>

interface Entry {
  readonly name: string
  readonly wire: string
  readonly field: Field
}

/** A declared record. Its fields stand in the order of answers. */
export class Declaration<Of extends Fields> {
  /** Body of a request that creates a record, and body of a request that changes it. */
  readonly creation: BodyOf<CreationOf<Of>>
  readonly update: BodyOf<ChangeBodyOf<Of>>
  readonly answer: TObject
  /** The defaults of a new record. */
  readonly initial: InitialOf<Of>
  /** The fields that are stored. */
  readonly storedEntries: readonly Entry[]
  readonly fields: Of
  readonly #entries: readonly Entry[]

  /** @param bodyOrder names of the fields with which bodies begin, as errors list them; the others follow */
  constructor(fields: Of, bodyOrder: readonly string[] = []) {
    this.fields = fields
    this.#entries = Object.entries(fields).map(([name, field]) => ({
      name,
      wire: field.wire ?? name.replace(/[A-Z]/g, letter => `_${letter.toLowerCase()}`),
      field,
    }))
    this.initial = Object.fromEntries(
      this.#entries.filter(({ field }) => 'initial' in field).map(({ name, field }) => [name, field.initial]),
    ) as InitialOf<Of>
    this.storedEntries = this.#entries.filter(
      ({ field: { only } }) => only === undefined || only === 'stored',
    )
    const bodyIndexOf = ({ wire }: Entry): number => bodyOrder.indexOf(wire) + 1 || Number.POSITIVE_INFINITY
    const bodyEntries = this.#entries.toSorted((a, b) => bodyIndexOf(a) - bodyIndexOf(b) || 0)
    const body = (schemaOf: (field: Field) => TSchema | undefined): TObject => {
      const properties = bodyEntries.flatMap(({ wire, field }) => {
        const schema = schemaOf(field)
        return schema === undefined ? [] : [[wire, schema] as const]
      })
      return Type.Object(Object.fromEntries(properties), { additionalProperties: false })
    }
    this.creation = body(({ create }) => create) as typeof this.creation
    this.update = body(({ change }) => change && Type.Optional(change)) as typeof this.update
    this.answer = Type.Object(
      Object.fromEntries(this.#servedEntries().map(({ wire, field }) => [wire, field.schema] as const)),
    )
  }

  #servedEntries(): readonly Entry[] {
    return this.#entries.filter(({ field: { only } }) => only === undefined || only === 'answer')
  }

  /**
   * The values that a body gives a new record.
   * @param nowMs for fields that are times
   * @throws GatewayError `invalid_request`
   */
  readNew(body: object, nowMs = 0): NewOf<Of> {
    return { ...this.initial, ...this.#read(body, 'create', nowMs) } as unknown as NewOf<Of>
  }

  /** The changes in a body; absent fields stay unchanged. @throws GatewayError `invalid_request` */
  readChange(body: object, nowMs = 0): ChangeOf<Of> {
    return this.#read(body, 'change', nowMs) as ChangeOf<Of>
  }

  #read(body: object, bodyKind: 'create' | 'change', nowMs: number): Values {
    const values: Record<string, unknown> = {}
    for (const { name, wire, field } of this.storedEntries) {
      const value = (body as Values)[wire]
      if (field[bodyKind] === undefined || value === undefined) continue
      const read = field.read as ((value: unknown, context: ReadingContext) => unknown) | undefined
      values[name] =
        value === null
          ? (field.initial ?? null)
          : read === undefined
            ? value
            : read(value, { field: wire, nowMs })
    }
    return values
  }

  /** The document for clients. @param computed values by their names there; they replace fields of the record */
  toDocument(record: RecordOf<Of>, computed: Values = {}): Values {
    const values: Record<string, unknown> = {}
    for (const { name, wire, field } of this.#servedEntries()) {
      const { fixed, write } = field
      if (Object.hasOwn(computed, wire)) values[wire] = computed[wire]
      else if (fixed !== undefined) values[wire] = fixed
      else {
        const value: unknown = (record as Values)[name]
        values[wire] = write === undefined ? value : (write as (value: unknown) => unknown)(value)
      }
    }
    return values
  }

  /** An example of the document: fields that are left out have the value of a new record. */
  toExample(values: Values): Values {
    return this.toDocument(this.initial as unknown as RecordOf<Of>, values)
  }
}

/** Fields of answers that are computed, all of one type. */
export function computedFields<Schema extends TSchema, Name extends string>(
  schema: Schema,
  ...names: readonly Name[]
) {
  const field = { schema, only: 'answer' } as const
  return Object.fromEntries(names.map(name => [name, field])) as Record<Name, typeof field>
}

/** Fields that have the same value in all answers, because this version does not have the feature. */
export function fixedFields<Schema extends TSchema, Name extends string>(
  schema: Schema,
  value: Static<Schema>,
  ...names: readonly Name[]
) {
  const field = { schema, only: 'answer', fixed: value } as const
  return Object.fromEntries(names.map(name => [name, field])) as Record<Name, typeof field>
}

/** The schema of a field in bodies that create a record and in those that change it. */
export function inBodies<Schema extends TSchema>(schema: Schema) {
  return { create: schema, change: schema } as const
}
