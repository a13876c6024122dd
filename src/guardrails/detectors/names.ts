/** Given names and surnames of many languages, and words that only look like names. Pure data. */

const words = (list: string): ReadonlySet<string> => new Set(list.trim().split(/\s+/))

export const GIVEN_NAMES = words(`
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

export const SURNAMES = words(`
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

/** Words that are no surname after a given name: places, things and months named after people. */
export const NO_SURNAMES = words(`
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
