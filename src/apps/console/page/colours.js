/** Colours for named things: the same thing has the same colour in every chart of this tab. */

/** Variables of the style, which colour-blind people can distinguish. */
const PALETTE = ['--c1', '--c2', '--c3', '--c4', '--c5', '--c6', '--c7', '--c8']
/** Further names share colours with others. */
const NAMES_MAX = 1_000
const given = new Map()

/** The variable of a name, such as a model. The first names get different colours. */
export function colourOf(kind, name) {
  if (name === null) return '--c0'
  const key = `${kind} ${name}`
  let colour = given.get(key)
  if (colour === undefined) {
    const ofKind = [...given.keys()].filter(each => each.startsWith(`${kind} `)).length
    colour = PALETTE[ofKind % PALETTE.length]
    if (given.size < NAMES_MAX) given.set(key, colour)
  }
  return colour
}
