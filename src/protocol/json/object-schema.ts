/**
 * JSON Schemas that the gateway itself writes: for function arguments and for answers of models. Pure.
 */

type Fields = Readonly<Record<string, unknown>>

/** The schema of an object with these fields and no others; those not in `required` may be missing. */
export function objectSchema(required: readonly string[], properties: Fields): Fields {
  const requiredField = required.length === 0 ? {} : { required }
  return { type: 'object', properties, ...requiredField, additionalProperties: false }
}

/** The setting `text` for an answer that is an object with all these fields. */
export function answerFormat(name: string, properties: Fields) {
  const schema = objectSchema(Object.keys(properties), properties)
  return { format: { type: 'json_schema', name, strict: true, schema } } as const
}
