"""The kinds of parameter that functions of each group take."""

from __future__ import annotations

from tools.demo_model.data import words as w
from tools.demo_model.data.params import (
    A,
    E,
    Kind,
    N,
    S,
    city_state,
    clock,
    code,
    date,
    flag,
    float_numbers,
    integer,
    listing,
    percent,
    person,
    pick,
    plain_numbers,
    year,
)

CITY = S(
    "city/location/place/destination/city_name",
    "The city.|Name of the city.|The location to look up.|City of interest, e.g. 'Oslo'.",
    w.CITIES,
    "in {v}|for {v}|around {v}|at {v}|near {v}",
)
CITY_STATE = S(
    "location/city",
    "The city and state, e.g. San Francisco, CA.|Location in the form City, State.",
    city_state,
    "in {v}|near {v}|for {v}|around {v}",
)
COUNTRY = S(
    "country/country_name/nation/region",
    "The country.|Name of the country.",
    w.COUNTRIES,
    "in {v}|of {v}|for {v}|from {v}",
)
STATE = S(
    "state/jurisdiction/region",
    "The state.|Name of the state.",
    w.STATES,
    "in {v}|in the state of {v}|for {v}",
)
DATE = S(
    "date/day/start_date/on_date",
    "The date in YYYY-MM-DD format.|Date, format YYYY-MM-DD.|The day, as 'YYYY-MM-DD'.",
    date,
    "on {v}|for {v}|dated {v}|starting {v}",
)
TIME = S(
    "time/start_time/hour",
    "Time in HH:MM, 24 hours.|The time, e.g. '18:30'.",
    clock,
    "at {v}|from {v}|starting at {v}",
)
YEAR2 = Kind(
    ("year", "season", "release_year"),
    "integer",
    ("The year.", "Year of interest.", "The year, e.g. 2010."),
    year(1900, 2026),
    ("in {v}", "in the year {v}", "for {v}", "from {v}", "of {v}"),
)
NAME = S(
    "name/person/person_name/customer/player_name/username/patient",
    "Full name of the person.|Name of the person.|The name.",
    person,
    "for {v}|of {v}|by {v}|named {v}|called {v}",
)
COMPANY = S(
    "company/company_name/organization",
    "Name of the company.|The company.",
    w.COMPANIES,
    "for {v}|of {v}|at {v}|by {v}",
)
STOCK = S(
    "symbol/ticker/stock",
    "The stock symbol.|Ticker of the company.",
    w.COMPANY_CODES,
    "for {v}|of {v}|with the symbol {v}",
)
ID = S(
    "id/order_id/user_id/account_number/case_number/code",
    "The identifier.|Unique id.|The reference number.",
    code,
    "with id {v}|number {v}|{v}|with the reference {v}",
)
UNIT = S(
    "unit/units",
    "Unit of measurement.|The unit of the result.|Measurement unit, default is 'meters'.",
    w.UNITS,
    "in {v}|using {v}|expressed in {v}",
)
LIMIT = Kind(
    ("limit", "count", "max_results", "num_results", "number", "top_n"),
    "integer",
    (
        "How many results to return.",
        "Maximum number of results. Default is 5.",
        "The number of results.",
    ),
    integer(1, 20),
    (
        "give me {v} of them",
        "show {v} results",
        "limited to {v}",
        "list the top {v}",
        "return {v} results",
    ),
)
INCLUDE = Kind(
    ("detailed", "include_details", "verbose", "include_history", "full_report"),
    "boolean",
    (
        "Whether to return details.",
        "If true, include details. Default is false.",
        "Set true for the full version.",
    ),
    lambda rng: (True, ""),
    ("with all the details", "and include details", "with a full report", "in detail"),
)
CURRENCY = S(
    "currency/from_currency/base_currency",
    "Currency code.|The currency, as a three-letter code.",
    w.CURRENCIES,
    "in {v}|using {v}",
)
LANGUAGE = S(
    "language/lang/target_language",
    "The language.|Language of the answer. Default is English.",
    w.LANGUAGES,
    "in {v}|into {v}",
)
RATE = Kind(
    ("interest_rate", "rate", "annual_rate", "return_rate", "growth_rate"),
    "number",
    ("The rate as a decimal.", "Annual rate, as a decimal (0.05 for 5%).", "Rate in decimal form."),
    percent,
    (
        "at {v}",
        "with a rate of {v}",
        "at an annual rate of {v}",
        "with {v} interest",
        "growing at {v}",
    ),
)
GRID = A(
    "numbers/values/data/scores/dataset",
    "integer",
    "List of numbers.|The numbers to use.|Array of integers.",
    plain_numbers(1, 99),
    "of {v}|for the numbers {v}|given {v}|from {v}|using the values {v}",
)
FLOATS = A(
    "values/data/measurements/samples",
    "number",
    "List of numbers.|The measured values.",
    float_numbers(-9, 99),
    "of {v}|given {v}|for {v}|using {v}",
)
POINT = A(
    "point/coordinates/start/point1",
    "integer",
    "The coordinates [x, y].|A point as [x, y].",
    plain_numbers(-9, 20, (2, 2)),
    "at {v}|from {v}|for the point {v}",
)
SUBJECT = S(
    "topic/subject/query/keyword/field",
    "The topic.|Subject of interest.|Search keyword.",
    w.SUBJECTS,
    "about {v}|on {v}|regarding {v}|related to {v}|in the field of {v}",
)
TITLE = S(
    "title/name/movie_name/song/book",
    "The title.|Title of the work.",
    w.TITLES,
    "of '{v}'|for {v}|called {v}|titled {v}|of {v}",
)
GENRE = S(
    "genre/style/category",
    "The genre.|Genre of interest.",
    w.GENRES,
    "in the {v} genre|of {v}|with genre {v}|{v}",
)
SPEED = N("speed/velocity/initial_velocity", 1, 200, "m/s", kind="number")
QTY = Kind(
    ("quantity", "amount", "number_of_people", "guests", "servings", "passengers", "rooms"),
    "integer",
    ("How many.", "The quantity.", "Number of units."),
    integer(1, 15),
    ("for {v}", "for {v} people", "a quantity of {v}", "{v} of them", "for {v} persons"),
)
MONEY = Kind(
    ("amount", "price", "budget", "principal", "loan_amount", "max_price", "income", "cost"),
    "integer",
    ("The amount in dollars.", "Amount of money.", "The sum."),
    integer(50, 500000, money=True),
    ("of {v}", "for {v}", "with a budget of {v}", "amounting to {v}", "under {v}", "with {v}"),
)
YEARS = Kind(
    ("years", "duration", "term", "period", "time"),
    "integer",
    ("Duration in years.", "Number of years.", "The term, in years."),
    integer(1, 40),
    ("over {v} years", "for {v} years", "after {v} years", "with a {v}-year term", "in {v} years"),
)
DAYS = Kind(
    ("days", "num_days", "duration", "forecast_days", "nights"),
    "integer",
    ("Number of days.", "How many days."),
    integer(1, 30),
    ("for {v} days", "over the next {v} days", "for the next {v} days", "lasting {v} days"),
)
EMAIL = Kind(
    ("email", "recipient", "to"),
    "string",
    ("Email address.", "The recipient's email."),
    lambda rng: (lambda v: (v, v))(
        f"{rng.choice(w.FIRST).lower()}.{rng.choice(w.LAST).lower()}@example.com"
    ),
    ("to {v}", "for {v}", "with email {v}"),
)
EXPR = S(
    "function/expression/equation",
    "The expression.|Mathematical function, as a string.",
    w.EXPRESSIONS,
    "of {v}|for f(x) = {v}|of the function {v}|given {v}",
)

COMMON: tuple[Kind, ...] = (LIMIT, INCLUDE, UNIT, LANGUAGE, YEAR2, DATE)
KINDS: dict[str, tuple[Kind, ...]] = {
    "geometry": (
        N("base/base_length", 1, 60, "cm"),
        N("height/h", 1, 90, "cm"),
        N("radius/r", 1, 50, "meters"),
        N("width", 1, 80, "meters"),
        N("length/side_length/side", 1, 99, "meters"),
        N("angle", 1, 180, "degrees"),
        N("depth", 1, 40, "meters", kind="number"),
        POINT,
        UNIT,
    ),
    "physics": (
        N("mass/object_mass", 1, 500, "kg"),
        SPEED,
        N("distance/displacement", 1, 900, "meters"),
        N("time/duration", 1, 120, "seconds"),
        N("height", 1, 500, "meters"),
        N("force", 1, 900, "newtons"),
        N("charge", 1, 20, "coulombs", kind="number"),
        N("temperature/initial_temperature", -20, 400, "celsius"),
        N("current", 1, 40, "amperes", kind="number"),
        N("voltage", 1, 240, "volts"),
        N("acceleration/gravity", 1, 20, "m/s^2", kind="number", places=2),
        N("frequency", 10, 900, "Hz"),
        S(
            "material/medium/substance",
            "The material.|Name of the substance.",
            w.MATERIALS,
            "in {v}|for {v}|made of {v}|through {v}",
        ),
    ),
    "math": (
        GRID,
        FLOATS,
        N("n/number/num", 1, 200, ""),
        Kind(
            ("a", "num1", "first"),
            "integer",
            ("First number.", "The first integer."),
            integer(1, 500),
            ("of {v}", "for {v}", "with first number {v}"),
        ),
        EXPR,
        N("exponent/power", 2, 9, ""),
        N("probability/p", 0.05, 0.95, "", kind="number", places=2),
        N("trials", 1, 60, ""),
        N("degree/order", 1, 6, ""),
        A(
            "matrix/rows/vector",
            "integer",
            "A list of integers.",
            plain_numbers(0, 9),
            "of {v}|for {v}",
        ),
    ),
    "finance": (
        MONEY,
        RATE,
        YEARS,
        STOCK,
        COMPANY,
        CURRENCY,
        COUNTRY,
        E(
            "compounding/frequency",
            "How often interest is compounded.",
            "monthly/yearly/daily/quarterly",
            "compounded {v}|{v}",
        ),
        E(
            "account_type/type",
            "Kind of account.",
            "savings/checking/business",
            "in a {v} account|for {v}",
        ),
        N("down_payment/monthly_contribution", 100, 9000, "dollars"),
    ),
    "weather": (
        CITY,
        CITY_STATE,
        COUNTRY,
        DATE,
        DAYS,
        TIME,
        E(
            "unit/temperature_unit",
            "Temperature unit.",
            "celsius/fahrenheit",
            "in {v}|in degrees {v}",
        ),
    ),
    "travel": (
        CITY,
        Kind(
            ("origin", "from_city", "departure", "start_location", "source"),
            "string",
            ("Where the trip starts.", "Departure city.", "The starting place."),
            pick(w.CITIES),
            ("from {v}", "leaving from {v}", "departing {v}", "starting in {v}"),
        ),
        Kind(
            ("destination", "to_city", "arrival", "end_location"),
            "string",
            ("Where the trip ends.", "Destination city."),
            pick(w.CITIES),
            ("to {v}", "going to {v}", "with destination {v}", "arriving in {v}"),
        ),
        DATE,
        QTY,
        DAYS,
        MONEY,
        E(
            "class/cabin/seat_class",
            "Travel class.",
            "economy/business/first",
            "in {v} class|{v} class",
        ),
        A(
            "amenities/features",
            "string",
            "Wanted amenities.|List of features.",
            listing(pick(w.AMENITIES), 2, 3),
            "with {v}|that has {v}|offering {v}",
        ),
        E(
            "transport/mode/travel_mode",
            "Means of transport.",
            "driving/walking/cycling/transit",
            "by {v}|via {v}",
        ),
        Kind(
            ("avoid_tolls", "direct_only", "round_trip", "pet_friendly"),
            "boolean",
            ("Whether it is wanted. Default false.", "True if wanted."),
            lambda rng: (True, ""),
            (
                "that is pet friendly and direct",
                "and make it direct",
                "avoiding tolls",
                "as a round trip",
            ),
        ),
    ),
    "food": (
        S("dish/recipe/food/item", "The dish.|Name of the food.", w.FOODS, "for {v}|of {v}"),
        A(
            "ingredients/items",
            "string",
            "List of ingredients.|Ingredients to use.",
            listing(pick(w.INGREDIENTS)),
            "with {v}|using {v}|containing {v}",
        ),
        S(
            "cuisine/cuisine_type",
            "Type of cuisine.",
            w.CUISINES,
            "serving {v} food|of {v} cuisine|{v}",
        ),
        S(
            "diet/dietary_restriction/preference",
            "Dietary restriction.",
            w.DIETS,
            "that is {v}|suitable for {v}|{v}",
        ),
        QTY,
        CITY,
        CITY_STATE,
        N("calories/max_calories", 100, 2500, "kcal"),
        TIME,
        N("cooking_time/minutes", 5, 180, "minutes"),
    ),
    "health": (
        N("weight", 40, 130, "kg"),
        N("height", 140, 205, "cm"),
        N("age", 1, 95, "years"),
        E("gender/sex", "Gender of the person.", "male/female", "for a {v}|{v}"),
        S(
            "disease/condition/symptom",
            "The disease.|Name of the condition.",
            w.DISEASES,
            "for {v}|related to {v}|with {v}",
        ),
        S(
            "drug/medication/medicine",
            "Name of the drug.",
            w.MEDICINES,
            "of {v}|for {v}|when taking {v}",
        ),
        CITY_STATE,
        E(
            "activity_level/intensity",
            "How active the person is.",
            "low/moderate/high/sedentary",
            "with {v} activity|at {v} intensity",
        ),
        NAME,
        N("hours/sleep_hours", 1, 12, "hours", kind="number"),
        DATE,
    ),
    "media": (
        TITLE,
        GENRE,
        S(
            "artist/author/director/creator",
            "Name of the artist.|The creator.",
            person,
            "by {v}|of {v}|from {v}",
        ),
        S("platform/service/source", "The platform.", w.PLATFORMS, "on {v}|available on {v}"),
        CITY,
        DATE,
        YEAR2,
        S("instrument", "The instrument.", w.INSTRUMENTS, "for {v}|played on {v}"),
        N("rating/min_rating", 1, 10, "", kind="number"),
        LIMIT,
        TIME,
    ),
    "sports": (
        S(
            "team/team_name/club",
            "Name of the team.|The team.",
            w.TEAMS,
            "of {v}|for the {v}|for {v}",
        ),
        S("player/player_name", "Name of the player.", person, "of {v}|for {v}|by {v}"),
        S("sport/game", "The sport.", w.SPORTS, "in {v}|for {v}"),
        YEAR2,
        E(
            "league/competition",
            "The league.",
            "NBA/NFL/Premier League/La Liga/MLB",
            "in the {v}|from the {v}",
        ),
        DATE,
        LIMIT,
    ),
    "law": (
        ID,
        STATE,
        S(
            "party/plaintiff/company",
            "Name of the party.",
            w.COMPANIES,
            "against {v}|involving {v}|filed by {v}",
        ),
        YEAR2,
        E(
            "case_type/type/category",
            "Type of case.",
            "civil/criminal/patent/divorce/family",
            "of type {v}|for {v} law|about {v} matters",
        ),
        CITY_STATE,
        INCLUDE,
        N("years_of_experience", 1, 30, "years"),
        DATE,
    ),
    "people": (
        NAME,
        EMAIL,
        ID,
        DATE,
        TIME,
        S(
            "department/team",
            "The department.",
            ("sales", "engineering", "marketing", "finance", "support"),
            "in {v}|from the {v} department|of {v}",
        ),
        E(
            "priority/status",
            "The priority.",
            "low/medium/high/urgent",
            "with {v} priority|marked {v}",
        ),
        S(
            "subject/message/note",
            "Text of the message.",
            ("budget review", "project update", "team lunch", "weekly report", "welcome aboard"),
            "about {v}|saying '{v}'|with the subject {v}",
        ),
        N("duration/minutes", 10, 120, "minutes"),
        S("product/item", "The product.", w.PRODUCTS, "for a {v}|of the {v}|for {v}"),
        QTY,
    ),
    "science": (
        S("species/animal/organism", "The species.", w.ANIMALS, "of the {v}|for {v}|of a {v}"),
        S("compound/molecule/element/substance", "The substance.", w.ELEMENTS, "of {v}|for {v}"),
        S(
            "sequence/dna_sequence",
            "DNA sequence.",
            w.SEQUENCES,
            "of {v}|for the sequence {v}|given {v}",
        ),
        S("planet/body", "The planet.", w.PLANETS, "of {v}|around {v}|on {v}"),
        N("population/initial_population", 10, 90000, ""),
        RATE,
        YEARS,
        N("temperature", -20, 300, "celsius", kind="number"),
        N("concentration", 0.1, 9.9, "mol/L", kind="number", places=2),
        COUNTRY,
        UNIT,
    ),
    "history": (
        S(
            "event/event_name",
            "Name of the event.",
            w.EVENTS,
            "of {v}|for {v}|about {v}|during {v}",
        ),
        COUNTRY,
        YEAR2,
        NAME,
        S("subject/invention/topic", "The subject.", w.SUBJECTS, "about {v}|in {v}|of {v}"),
        LANGUAGE,
        DATE,
        LIMIT,
    ),
    "tech": (
        S(
            "text/sentence/content",
            "The text.",
            (
                "I love this place",
                "good morning",
                "the service was slow",
                "hello world",
                "see you tomorrow",
            ),
            "of '{v}'|for the text \"{v}\"|'{v}'",
        ),
        S(
            "file_name/path/file",
            "Name of the file.",
            ("report.pdf", "data.csv", "notes.txt", "image.png", "config.json"),
            "of {v}|for {v}|in {v}",
        ),
        S(
            "database/table/db_name",
            "The database.",
            ("customers", "orders", "inventory", "employees", "sales"),
            "in the {v} table|from {v}|of {v}",
        ),
        LANGUAGE,
        LIMIT,
        N("timeout/port", 1, 9000, ""),
        E("format/output_format", "Output format.", "json/csv/xml/html", "as {v}|in {v} format"),
        S(
            "url/site/website",
            "The web address.",
            ("www.example.com", "https://example.org/page", "shop.example.net"),
            "of {v}|for {v}|from {v}",
        ),
        INCLUDE,
        SUBJECT,
    ),
}
FLAG = flag
