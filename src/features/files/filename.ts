/** File names given by callers and models. They are for display and search, never part of a path. Pure. */
import { GatewayError } from '../../base/errors.ts'

const MAX_NAME_CHARS = 255
/** Control characters, characters that only change how text is shown, unassigned ones, and lone surrogates. */
const HIDDEN_CHARACTERS = /[\p{Cc}\p{Cf}\p{Cn}\p{Cs}\p{Zl}\p{Zp}]/gu

/**
 * The last part of a path, without invisible characters.
 * @param field names it in errors
 * @throws GatewayError `invalid_request`
 */
export function cleanFilename(text: string, field: string): string {
  // Normalized first, because some characters become separators only in the stored form.
  const plain = text.normalize('NFC').replaceAll(HIDDEN_CHARACTERS, '')
  const name = plain.slice(Math.max(plain.lastIndexOf('/'), plain.lastIndexOf('\\')) + 1).trim()
  if (name === '' || name === '.' || name === '..')
    throw new GatewayError('invalid_request', `${field}: must end in a file name`)
  if (name.length > MAX_NAME_CHARS)
    throw new GatewayError('invalid_request', `${field}: must have at most ${MAX_NAME_CHARS} characters`)
  return name
}
