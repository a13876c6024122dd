/**
 * Names of people: a known given name with a surname, or capitalized words after an introduction. Pure. It misses names
 * that are in no list and have no introduction; docs/guardrails.md states the recall.
 */
import { before, type Detect, type Hit, noShapes, type Shape, shapeOf } from '../detector.ts'

const CAPITALIZED = "[A-ZÀ-ÖØ-ÞŁŚŽŠČ][a-zß-öø-ÿąćęłńóśźżčšžőűășțğışA-Z'’-]{1,24}"
const PARTICLE = "(?:(?:de|del|della|di|da|dos|van|von|der|den|la|le|el|al|bin|ibn|Mc|Mac|O[’'])[ -]?){0,2}"
const MORE_NAMES = `(?: (?:[A-Z]\\. )?${PARTICLE}${CAPITALIZED}){0,2}`

const NEXT_NAME = new RegExp(`^ (?:[A-Z]\\.? )?(${PARTICLE}(${CAPITALIZED}))(?![\\p{L}\\p{N}_@])`, 'u')
const NEXT_NAME_MAX_CHARS = 72
const GIVEN_NAME_MAX_CHARS = 24

/** True for Latin capitals, and for the small letters that alternate with them from U+0139 on. */
const isUpperCase = (code: number): boolean =>
  (code >= 65 && code <= 90) ||
  (code >= 0xc0 && code <= 0xde && code !== 0xd7) ||
  (code >= 0x139 && code <= 0x17d)
const isWordCharacter = (code: number): boolean =>
  (code >= 97 && code <= 122) || isUpperCase(code) || (code >= 0xc0 && code <= 0x24f) || code === 45
/** Characters that must not precede a word: it would be inside another word, a path or an address. */
const isJoining = (code: number): boolean =>
  isWordCharacter(code) ||
  (code >= 48 && code <= 57) ||
  code === 95 ||
  code === 64 ||
  code === 46 ||
  code === 47 ||
  code === 35

interface GivenName {
  readonly start: number
  readonly end: number
}

/** Finds the given names in a text. */
function givenNames(text: string): GivenName[] {
  const names: GivenName[] = []
  let isInsideWord = false
  for (let index = 0; index < text.length; index++) {
    const code = text.charCodeAt(index)
    if (isInsideWord || !isUpperCase(code)) {
      isInsideWord = isJoining(code)
      continue
    }
    let end = index + 1
    while (end < text.length && end - index <= GIVEN_NAME_MAX_CHARS && isWordCharacter(text.charCodeAt(end)))
      end++
    const word = text.slice(index, end)
    const hyphen = word.indexOf('-')
    if (GIVEN_NAMES.has(word) || (hyphen > 0 && GIVEN_NAMES.has(word.slice(0, hyphen))))
      names.push({ start: index, end })
    index = end - 1
    isInsideWord = true
  }
  return names
}

/** The first name that starts at `from` or later and for which `endOf` returns an end. */
function firstOf(
  names: readonly GivenName[],
  from: number,
  name: string,
  endOf: (name: GivenName) => number | null,
): Hit | null {
  let low = 0
  let high = names.length
  while (low < high) {
    const middle = (low + high) >> 1
    if ((names[middle]?.start ?? 0) < from) low = middle + 1
    else high = middle
  }
  for (let index = low; index < names.length; index++) {
    const givenName = names[index]
    const end = givenName === undefined ? null : endOf(givenName)
    if (givenName !== undefined && end !== null) return { start: givenName.start, end, name }
  }
  return null
}

/** The end of the name that begins with a given name; null if no surname follows. */
function endOfName(text: string, { end }: GivenName): number | null {
  const nextMatch = NEXT_NAME.exec(text.slice(end, end + NEXT_NAME_MAX_CHARS))
  const surname = nextMatch?.[2]
  if (nextMatch === null || surname === undefined || !isSurname(surname)) return null
  const second = end + nextMatch[0].length
  const thirdMatch = NEXT_NAME.exec(text.slice(second, second + NEXT_NAME_MAX_CHARS))
  if (thirdMatch?.[2] === undefined) return second
  if (SURNAMES.has(thirdMatch[2])) return second + thirdMatch[0].length
  // `Charles Darwin University` is a place, `Ann Lee Smith` is not.
  return PLACE_NAMES.test(thirdMatch[2]) ? null : second
}

function isSurname(word: string): boolean {
  if (SURNAMES.has(word)) return true
  return !NOT_SURNAMES.has(word) && !/^[A-Z]+$/.test(word) && /[a-zà-ÿ]{2}/.test(word)
}

const PLACE_NAMES =
  /^(?:Airport|Avenue|Bridge|Building|Center|Centre|College|County|Foundation|Hall|Hospital|Hotel|Institute|Library|Museum|Park|Prize|River|School|Square|Station|Street|Tower|University)$/

const shapeWithHead = (name: string, head: string, namePattern: string): Shape => {
  const expression = new RegExp(
    `(?<![\\p{L}\\p{N}_])(?:${head})(?<named>${namePattern})(?![\\p{L}\\p{N}_])`,
    'gu',
  )
  return {
    find(text, from): Hit | null {
      // The head is before the hit, so it may be before `from`.
      expression.lastIndex = Math.max(0, from - HEAD_MAX_CHARS)
      for (;;) {
        const match = expression.exec(text)
        if (match === null) return null
        const end = match.index + match[0].length
        const start = end - (match.groups?.['named'] ?? '').length
        const first = text.slice(start, end).split(' ')[0] ?? ''
        if (start >= from && !NOT_SURNAMES.has(first)) return { start, end, name }
        expression.lastIndex = match.index + 1
      }
    },
  }
}
const HEAD_MAX_CHARS = 40

const titledName = shapeWithHead(
  'titled_name',
  '(?:Mr|Mrs|Ms|Miss|Mx|Dr|Prof|Professor|Sir|Madam|Herr|Herrn|Frau|Monsieur|Madame|Mme|Mlle|Señor|Señora|Sra|Sr|Dña|Don|Doña|Signor|Signora|Sig|Senhor|Senhora|Pan|Pani)\\.? (?:(?:Dr|Prof)\\. )?',
  `${PARTICLE}${CAPITALIZED}${MORE_NAMES}`,
)
const introducedName = shapeWithHead(
  'introduced_name',
  "(?:[Mm]y name is|[Mm]y name's|[Nn]ame is|[Ff]ull name ?:|[Nn]ame ?:|[Cc]all me|[Pp]atient ?:|[Cc]ustomer ?:|[Cc]ontact ?:|[Aa]ttn:?|[Ss]incerely, ?|[Rr]egards, ?|[Ss]igned,? |[Jj]e m['’]appelle|[Jj]e suis|[Mm]e llamo|[Mm]i nombre es|[Ii]ch heiße|[Mm]ein Name ist|[Mm]i chiamo|[Mm]eu nome é|[Nn]azywam się|[Ii]k heet|[Jj]ag heter)\\s",
  `${PARTICLE}${CAPITALIZED}${MORE_NAMES}`,
)
const eastAsianName = shapeOf(
  'introduced_name',
  /(?<=(?:我叫|我是|我的名字是|姓名[::]\s?|名叫|私の名前は|わたしは|氏名[::]\s?|제 이름은 |저는 ))[\u4e00-\u9fff\uac00-\ud7af]{2,4}?(?=$|[\s,。,.!、]|です|と申|입니다|住|电|,)/g,
)

const GREETING = /(?:dear|hello|hallo|liebe[r]?|cher|chère|querid[oa]|ciao|caro|cara|i'm|i am|hi) $/
const TITLE =
  /(?:M(?:rs?|s|iss|x|me|lle|onsieur|adame?)|Dr|Prof(?:essor)?|Sir|Herrn?|Frau|Se[ñn]h?ora?|Sr?a|Sr|Dña|Do[nñ]a?|Sig(?:nora?)?|Pani?)\.? /
const INTRODUCTION =
  /name|call me|Call me|atient ?:|ustomer ?:|ontact ?:|[Aa]ttn|incerely|egards|igned|appelle|e suis|llamo|nombre|heiße|Name|chiamo|nome|azywam|k heet|g heter/
const EAST_ASIAN_INTRODUCTION = /我叫|我是|名字|姓名|名叫|名前|わたしは|氏名|이름|저는/

export const detectPersonName: Detect = text => {
  const shapes: Shape[] = []
  const names = givenNames(text)
  if (names.length > 0) {
    shapes.push(
      { find: (_text, from) => firstOf(names, from, 'full_name', givenName => endOfName(text, givenName)) },
      {
        find: (_text, from) =>
          firstOf(names, from, 'addressed_name', ({ start, end }) =>
            GREETING.test(before(text, start, 16)) ? end : null,
          ),
      },
    )
  }
  if (TITLE.test(text)) shapes.push(titledName)
  if (INTRODUCTION.test(text)) shapes.push(introducedName)
  if (NOT_LATIN.test(text) && EAST_ASIAN_INTRODUCTION.test(text)) shapes.push(eastAsianName)
  return shapes.length === 0 ? noShapes() : shapes
}

const NOT_LATIN = /[\u3040-\u9fff\uac00-\ud7af]/

const wordSet = (list: string): ReadonlySet<string> => new Set(list.trim().split(/\s+/))

const GIVEN_NAMES = wordSet(`
Aaron Abdul Abdullah Abigail Adam Adrian Adriana Ahmed Aisha Akira Alan Albert Alejandra Alejandro Aleksandr Alessandro Alex
Alexander Alexandra Alexis Alfred Ali Alice Alicia Alison Allison Alma Amanda Amber Amelia Amina Amir Amit Amy Ana Anastasia
Andre Andrea Andreas Andrei Andrew Andrzej Angela Angelica Angelo Anita Anja Anke Ann Anna Anne Annette Annika Anthony Antoine
Anton Antonio Anya Arjun Arnold Arthur Arturo Astrid Audrey Ava Ayesha Barbara Barry Beatrice Beatriz Ben Benjamin Bernard
Bernd Beth Bethany Betty Bianca Björn Bob Bogdan Boris Brad Bradley Brandon Brenda Brian Bridget Bruce Bruno Bryan Camila
Camille Carl Carla Carlos Carmen Carol Carolina Caroline Carolyn Catherine Cecilia Cedric Chad Charles Chen Chiara Chloe
Chris Christian Christina Christine Christoph Christopher Cindy Claire Clara Claudia Claudio Colin Connor Craig Cristina
Cynthia Dale Damien Dan Daniel Daniela Danielle Danny Darren Dave David Dawn Deborah Denise Dennis Derek Diana Diane Diego
Dieter Dimitri Dirk Dmitri Dmitry Dominic Dominik Donald Donna Doris Dorothy Douglas Duncan Dylan Eduardo Edward Edwin Eileen
Ekaterina Elaine Elena Eleanor Elias Elisa Elizabeth Ella Ellen Emilia Emilio Emily Emma Emmanuel Enrique Eric Erica Erik
Erika Esther Ethan Eugene Eva Evelyn Fabian Fatima Felicia Felipe Felix Fernanda Fernando Fiona Florian Frances Francesca
Francesco Francis Francisco Franck Frank François Fred Frederick Friedrich Gabriel Gabriela Gareth Gary Gavin Geoffrey George
Gerald Gerard Gerhard Giorgio Giovanni Giulia Giuseppe Gloria Gordon Graham Greg Gregory Greta Guillaume Guillermo Gustavo
Hana Hannah Hans Haruto Harold Harriet Harry Hassan Heather Hector Heidi Heike Heinrich Helen Helena Helga Henri Henry
Herbert Hiroshi Holly Howard Hugh Hugo Hussein Ian Ibrahim Igor Ines Ingrid Irene Irina Isaac Isabel Isabella Ivan Jack Jackie
Jacob Jacqueline Jaime Jake James Jamie Jan Jane Janet Janice Jasmine Jason Javier Jean Jeff Jeffrey Jelena Jennifer Jenny
Jeremy Jerry Jesse Jessica Jesús Jill Jim Joan Joanna Joao João Joe Joel Johan Johann Johanna Johannes John Johnny Jon
Jonathan Jordi Jorge Jose José Joseph Josephine Joshua Juan Juana Judith Judy Julia Julian Juliana Julie Julien Jürgen Karen
Karin Karl Karla Katarina Kate Katharina Katherine Kathleen Kathryn Katie Katja Kayla Keith Kelly Ken Kenji Kenneth Kevin
Khalid Kim Kimberly Klaus Kristen Kristin Kurt Kyle Lars Larry Laszlo Laura Lauren Lawrence Leah Lena Leo Leon Leonardo Leslie
Liam Lily Linda Lisa Logan Lorenzo Louis Louise Luca Lucas Lucia Lucy Luis Luisa Lukas Lydia Madison Magdalena Manuel Manuela
Marc Marcel Marcela Marco Marcos Marcus Margaret Maria María Marie Mariana Mario Marion Mark Markus Marta Martha Martin
Martina Mary Mateo Mathias Mathieu Matt Matteo Matthew Matthias Maureen Maurice Maximilian Megan Mei Melanie Melissa Michael
Michał Michel Michelle Miguel Mikhail Mila Mohamed Mohammad Mohammed Mónica Monica Monika Muhammad Nadia Nancy Naomi Natalia
Natalie Natasha Nathan Nicholas Nick Nicola Nicolas Nicole Nikita Nikolai Nina Noah Nora Norma Olaf Oleg Olga Oliver Olivia
Omar Oscar Owen Pablo Pamela Paolo Pascal Patricia Patrick Paul Paula Pavel Pedro Peggy Penelope Peter Petra Philip Philippe
Phillip Pierre Piotr Priya Rachel Rafael Rahul Raj Rajesh Ralph Ramon Raquel Raúl Ravi Raymond Rebecca Renate Ricardo Richard
Rita Robert Roberto Rodrigo Roger Roland Roman Ronald Rosa Rosemary Roy Ruben Russell Ruth Ryan Sabine Sakura Salma Sam
Samantha Samuel Sandra Sandro Sanjay Santiago Sara Sarah Sean Sebastian Serge Sergei Sergey Sergio Shannon Sharon Shaun Sheila
Shirley Silvia Simon Simone Sofia Sonia Sophia Sophie Stacy Stanley Stefan Stefanie Stella Stephan Stephanie Stephen Steve
Steven Stuart Sunita Susan Susanne Suzanne Sven Svetlana Sylvia Takeshi Tamara Tanya Tara Tatiana Teresa Terry Theodore
Theresa Thomas Tiffany Tim Timothy Tobias Todd Tom Tomás Tomasz Tony Tracy Ursula Uwe Valentina Valeria Vanessa Vera Veronica
Vicente Victor Vijay Vikram Vincent Virginie Vladimir Walter Wanda Wei Wendy Werner William Wolfgang Xavier Yasmin Yolanda
Youssef Yuki Yuri Yusuf Yvonne Zachary Zoe Zofia`)

const SURNAMES = wordSet(`
Adams Ahmed Allen Alvarez Anderson Andersson Bailey Baker Barnes Bauer Becker Bell Bennett Bernard Bianchi Brooks Brown
Bryant Butler Campbell Carter Castillo Chan Chang Chavez Chen Clark Collins Colombo Cook Cooper Cox Cruz Davies Davis Diaz
Díaz Dubois Durand Edwards Esposito Evans Fernandes Fernández Ferrari Ferreira Fischer Fisher Flores Foster Fournier Garcia
García Gomez Gómez Gonzales Gonzalez González Gray Green Griffin Gupta Gutierrez Gutiérrez Hall Hansen Harris Hayes Henderson
Hernandez Hernández Hill Hoffmann Horvat Hughes Hussain Ivanov Ivanova Jackson Jansen James Jenkins Jensen Jimenez Johansson
Johnson Jones Jordan Kaur Kelly Khan Kim King Klein Koch Kovács Kowalski Kumar Lambert Lang Larsen Laurent Lee Lefebvre Leroy
Lewis Lin Long Lopez López Marino Martin Martinez Martínez Mayer Mehta Meyer Miller Mitchell Moore Morales Moreau Morgan Morris
Müller Mueller Murphy Murray Myers Nakamura Nelson Neumann Nguyen Nielsen Novák Nowak O'Brien O'Connor Okafor Olsen Ortiz Patel
Parker Perez Pérez Perry Peterson Petrov Petrova Phillips Popov Popescu Powell Price Ramirez Ramírez Ramos Reddy Reed Ricci Richardson Richter Rivera
Roberts Robinson Rodriguez Rodríguez Rogers Romano Ross Rossi Russell Russo Sanchez Sánchez Sanders Santos Sato Schmid Schmidt
Schmitt Schneider Schröder Schulz Schwarz Scott Sharma Shah Silva Simmons Simon Singh Smirnov Smith Sokolov Souza Stewart
Sullivan Suzuki Svensson Takahashi Tanaka Taylor Thomas Thompson Torres Tran Turner Vargas Vasquez Wagner Walker Wang Ward
Watanabe Watson Weber White Williams Wilson Wolf Wood Wright Yamamoto Yang Yilmaz Young Zhang Zhao Zimmermann`)

/** Words that are not a surname after a given name: places, things and months named after people. */
const NOT_SURNAMES = wordSet(`
Airport Academy Alley Avenue Award Awards Bank Bay Beach Boulevard Bridge Building Canal Castle Cathedral Center Centre Chapter
Church City Clinic Club Coast College Company Convention Corp Corporation Council County Court Creek Day Days Desert District
Drive Effect Equation Exchange Falls Family Festival Field Fields Force Forest Formula Foundation Garden Gardens Gate Group
Hall Harbor Harbour Heights Hotel House Inc Institute Island Islands Junction Lake Lane Law Library Limited Ltd Mall Market
Memorial Method Model Mount Mountain Mountains Museum Palace Park Peninsula Pharmacy Place Plaza Point Port Prize Project
Protocol River Road School Science Sciences Sea Square Station Stadium Street Summit Syndrome Test Texas Theater Theatre
Theorem Tower Town Transform Trust Tunnel University Valley Village Virginia Way Wharf Zoo January February March April May
June July August September October November December Monday Tuesday Wednesday Thursday Friday Saturday Sunday The A An And Or
But If In On At To Of For With From By Is Was Are Were Has Had Have Will Would Can Could Please Thanks Thank You We They He
She It My Your Our Their This That These Those What When Where Who Why How Not No Yes Street-View Cloud API SDK Studio Code
Pi AI Web Services Watson-AI Kindle Notebook Cup Open Grand Prix Award-winning Sr Jr Software Systems Labs`)
