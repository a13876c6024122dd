/**
 * JSON Schemas that the gateway itself writes: for function arguments and for answers that it asks models for. Pure.
 */

type Fields = Readonly<Record<string, unknown>>

/** The schema of an object that has fields of these names, and no others. */
export function objectSchema(required: readonly string[], properties: Fields): Fields {
  const needed = required.length === 0 ? {} : { required }
  return { type: 'object', properties, ...needed, additionalProperties: false }
}

/** The setting `text` of a request whose answer is an object of all these fields. */
export function answerFormat(name: string, properties: Fields) {
  const schema = objectSchema(Object.keys(properties), properties)
  return { format: { type: 'json_schema', name, strict: true, schema } } as const
}
