/**
 * The field `input` of POST /embeddings: one text, a list of texts, one list of token ids, a list of such lists, or a
 * list of inputs with parts. Pure. Written by hand, because a schema with a choice of lists could not name the faulty
 * element, and would check a million numbers several times.
 */
import { refuseField } from '../../base/errors.ts'
import type { EmbeddingItem, EmbeddingPart } from '../../protocol/embeddings.ts'
import { elementPath, isObject } from '../../protocol/json/schema.ts'
import { EMBEDDING_INPUTS_MAX, TOKEN_ID_MAX } from '../../protocol/limits.ts'

/** The allowed values, as error messages state them. */
const INPUT_FORMS =
  'a string, or an array of strings, of token ids, of arrays of token ids, or of objects with content'
const TOKEN_RULE = `must be a token id: an integer from 0 to ${TOKEN_ID_MAX}`
const PARTS_MAX = 256

interface ReadInput {
  readonly items: EmbeddingItem[]
  /** True if the body had a list of inputs; false if it had a single one. */
  readonly isList: boolean
}

/** @throws GatewayError `invalid_request` with the path of the element at fault */
export function readInput(input: unknown): ReadInput {
  if (input === undefined) throw refuseField('input', `is required and must be ${INPUT_FORMS}`)
  if (typeof input === 'string') return { items: [textItem(input, 'input')], isList: false }
  if (!Array.isArray(input)) throw refuseField('input', `must be ${INPUT_FORMS}`)
  const elements = input as readonly unknown[]
  const first = elements[0]
  if (elements.length === 0) throw refuseField('input', 'must have at least 1 element')
  if (typeof first === 'number') return { items: [tokenItem(elements, 'input')], isList: false }
  if (elements.length > EMBEDDING_INPUTS_MAX) {
    throw refuseField(
      'input',
      `must have at most ${EMBEDDING_INPUTS_MAX} elements: send the rest in another request`,
    )
  }
  return {
    items: elements.map((element, index) => itemOf(element, first, elementPath('input', index))),
    isList: true,
  }
}

/** All inputs of a list have the form of the first one. */
function itemOf(element: unknown, first: unknown, path: string): EmbeddingItem {
  if (typeof first === 'string') {
    if (typeof element !== 'string') throw refuseField(path, 'must be a string, like the first element')
    return textItem(element, path)
  }
  if (Array.isArray(first)) {
    if (!Array.isArray(element))
      throw refuseField(path, 'must be an array of token ids, like the first element')
    return tokenItem(element, path)
  }
  if (!isObject(first))
    throw refuseField(path, 'must be a string, a token id, an array of token ids, or an object')
  if (!isObject(element)) throw refuseField(path, 'must be an object with content, like the first element')
  return contentItem(element, path)
}

function textItem(text: string, path: string): EmbeddingItem {
  if (text === '') throw refuseField(path, 'must not be empty')
  return message(text)
}

function tokenItem(tokens: readonly unknown[], path: string): EmbeddingItem {
  if (tokens.length === 0) throw refuseField(path, 'must have at least 1 token id')
  for (let index = 0; index < tokens.length; index++) {
    const token = tokens[index]
    if (typeof token !== 'number' || !Number.isInteger(token) || token < 0 || token > TOKEN_ID_MAX) {
      throw refuseField(elementPath(path, index), TOKEN_RULE)
    }
  }
  return { ...message(''), tokens: tokens as readonly number[] }
}

function contentItem(element: Readonly<Record<string, unknown>>, path: string): EmbeddingItem {
  const { content } = element
  const contentPath = `${path}.content`
  if (!Array.isArray(content)) throw refuseField(contentPath, 'is required and must be an array of parts')
  if (content.length === 0) throw refuseField(contentPath, 'must have at least 1 part')
  if (content.length > PARTS_MAX) throw refuseField(contentPath, `must have at most ${PARTS_MAX} parts`)
  return message(content.map((part: unknown, index) => partOf(part, elementPath(contentPath, index))))
}

function partOf(part: unknown, path: string): EmbeddingPart {
  if (!isObject(part)) throw refuseField(path, 'must be an object (content part)')
  if (part['type'] === 'text') {
    const { text } = part
    if (typeof text !== 'string' || text === '')
      throw refuseField(`${path}.text`, 'must be a non-empty string')
    return { type: 'input_text', text }
  }
  if (part['type'] === 'image_url') {
    const url = isObject(part['image_url']) ? part['image_url']['url'] : undefined
    if (typeof url !== 'string' || url === '') {
      throw refuseField(`${path}.image_url.url`, 'must be a string: a URL or a data URL')
    }
    return { type: 'input_image', image_url: url }
  }
  throw refuseField(`${path}.type`, 'must be text or image_url')
}

function message(content: EmbeddingItem['content']): EmbeddingItem {
  return { type: 'message', role: 'user', content }
}
